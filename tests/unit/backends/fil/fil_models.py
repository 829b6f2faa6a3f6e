"""Trains tiny forests, writes them in every format, and loads them through the backend."""

from __future__ import annotations

import json
import struct
from functools import lru_cache
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import xgboost
from numpy.typing import NDArray

from bident.backends.base import BackendOptions, Device, ModelFiles
from bident.backends.fil import FilBackend
from bident.backends.fil.backend import FilInstance
from bident.model.config import ModelConfig
from bident.model.proto import pb

FEATURES = 6
NAME = "forest"
REGRESSOR = {"is_classifier": "false"}
CLASSES = {"is_classifier": "true", "threshold": "0.5"}
PROBABILITIES = {"is_classifier": "true", "predict_proba": "true"}


def rows(count: int, *, missing: float = 0.1, seed: int = 7) -> NDArray[np.float32]:
    """Rows with zeros and, where ``missing`` > 0, NaN among them."""
    random = np.random.default_rng(seed)
    values = random.normal(size=(count, FEATURES)).astype(np.float32)
    values[random.random(values.shape) < 0.1] = 0
    values[random.random(values.shape) < missing] = np.nan
    return values


def labels(kind: str, inputs: NDArray[np.float32]) -> NDArray[Any]:
    """Labels that depend on the inputs: 'real', 'positive', 'binary' or 'classes' (three of them)."""
    total = np.nansum(inputs[:, :3], axis=1)
    return {
        "real": total,
        "positive": np.abs(total) + 0.1,
        "binary": (total > 0).astype(int),
        "classes": np.digitize(total, [-1, 1]),
    }[kind]


@lru_cache
def booster(objective: str = "binary:logistic", kind: str = "binary", rounds: int = 6, **settings: Any) -> Any:
    """An XGBoost model."""
    inputs = rows(300, seed=1)
    wanted = {"objective": objective, "max_depth": 4, "seed": 0, "nthread": 1, "verbosity": 0, **settings}
    if kind == "classes":
        wanted["num_class"] = 3
    data = xgboost.DMatrix(inputs, label=labels(kind, inputs))
    if objective == "survival:aft":
        data.set_float_info("label_lower_bound", labels("positive", inputs))
        data.set_float_info("label_upper_bound", labels("positive", inputs) + 1)
    if objective.startswith("rank:"):
        data.set_group([30] * 10)
    return xgboost.train(wanted, data, rounds)


def categorical_rows(count: int = 400) -> NDArray[np.float32]:
    """Rows whose first feature is one of twelve categories, or missing."""
    inputs = rows(count)
    inputs[:, 0] = np.random.default_rng(0).integers(0, 12, count)
    inputs[::19, 0] = np.nan
    return inputs


@lru_cache
def categorical_booster(onehot: int = 1) -> Any:
    """An XGBoost regression with one categorical feature; up to ``onehot`` categories are split one by one."""
    inputs = categorical_rows()
    kinds = ["c"] + ["q"] * (FEATURES - 1)
    data = xgboost.DMatrix(inputs, label=np.nan_to_num(inputs[:, 0]) % 5, enable_categorical=True, feature_types=kinds)
    return xgboost.train({"max_cat_to_onehot": onehot, "max_depth": 5, "nthread": 1}, data, 6)


@lru_cache
def lightgbm_booster(objective: str = "binary", kind: str = "binary", **settings: Any) -> Any:
    """A LightGBM model."""
    inputs = rows(400, missing=settings.pop("missing", 0.1), seed=2)
    categorical = settings.pop("categorical", False)
    if categorical:
        inputs[:, 0] = np.random.default_rng(3).integers(0, 30, 400)
    wanted = {"objective": objective, "num_leaves": 9, "min_data_in_leaf": 5, "verbose": -1, "num_threads": 1}
    wanted |= {"num_class": 3} if kind == "classes" else {}
    truth = inputs[:, 0] % 7 > 3 if categorical else labels(kind, inputs)
    data = lightgbm.Dataset(
        inputs.astype(np.float64),
        truth,
        params=wanted | settings | {"min_data_per_group": 1},
        categorical_feature=[0] if categorical else "auto",
    )
    if objective in ("lambdarank", "rank_xendcg"):
        data.set_group([40] * 10)
    return lightgbm.train(wanted | settings, data, 8)


def document(model: Any) -> dict[str, Any]:
    """An XGBoost model's JSON, to be changed at will."""
    content: dict[str, Any] = json.loads(model.save_raw("json"))
    return content


def trees(content: dict[str, Any]) -> list[dict[str, Any]]:
    """The trees in an XGBoost document."""
    found: list[dict[str, Any]] = content["learner"]["gradient_booster"]["model"]["trees"]
    return found


def model_folder(folder: Path, data: bytes | str | dict[str, Any], name: str = "xgboost.json") -> ModelFiles:
    """A model folder with one file in its version 1."""
    if isinstance(data, dict):
        data = json.dumps(data)
    (folder / "1").mkdir(parents=True, exist_ok=True)
    (folder / "1" / name).write_bytes(data.encode() if isinstance(data, str) else data)
    return ModelFiles(folder, 1)


def config(
    parameters: dict[str, str] | None = None,
    *,
    output: tuple[int, ...] = (1,),
    features: tuple[int, ...] = (FEATURES,),
    max_batch_size: int = 4096,
    datatypes: tuple[str, str] = ("TYPE_FP32", "TYPE_FP32"),
    names: tuple[str, str] = ("input__0", "output__0"),
    contributions: int = 0,
) -> ModelConfig:
    """A config with one input and one output, and ``treeshap_output`` where ``contributions`` is its width."""
    proto = pb.ModelConfig(name=NAME, backend="fil", max_batch_size=max_batch_size)
    proto.input.add(name=names[0], data_type=pb.DataType.Value(datatypes[0]), dims=features)
    proto.output.add(name=names[1], data_type=pb.DataType.Value(datatypes[1]), dims=output)
    if contributions:
        proto.output.add(name="treeshap_output", data_type=pb.TYPE_FP32, dims=[contributions])
    for key, value in (parameters or {}).items():
        proto.parameters[key].string_value = value
    return ModelConfig.from_proto(proto)


def bare_config(parameters: dict[str, str] | None = None) -> ModelConfig:
    """The config of a model without a config file."""
    proto = pb.ModelConfig(name=NAME, backend="fil")
    for key, value in (parameters or {}).items():
        proto.parameters[key].string_value = value
    return ModelConfig.from_proto(proto)


def load(
    files: ModelFiles, wanted: ModelConfig, threads: int = 1, options: BackendOptions | None = None
) -> FilInstance:
    """An instance, as the engine would have it."""
    instance = FilBackend(options).load(files, wanted, Device(threads=threads))
    assert isinstance(instance, FilInstance)
    return instance


def answer(instance: FilInstance, inputs: NDArray[Any]) -> NDArray[Any]:
    """``output__0`` for ``inputs``."""
    return instance.execute({"input__0": inputs})["output__0"]


def legacy(content: dict[str, Any], major: int = 1, base_score: float | None = None) -> bytes:
    """An XGBoost document in the legacy binary format, as XGBoost itself wrote it until version 3.0."""
    learner = content["learner"]
    parameters = learner["learner_model_param"]
    score = float(parameters["base_score"].strip("[]")) if base_score is None else base_score
    classes, features = int(parameters["num_class"]), int(parameters["num_feature"])
    objective, gbm = learner["objective"]["name"].encode(), learner["gradient_booster"]["name"].encode()
    model = learner["gradient_booster"]["model"]
    parts = [
        struct.pack("<fIiiiIIIi", score, features, classes, 0, 0, major, 0, 1, 1).ljust(136, b"\0"),
        struct.pack("<Q", len(objective)) + objective + struct.pack("<Q", len(gbm)) + gbm,
        struct.pack("<2i", len(model["trees"]), 1).ljust(160, b"\0"),
    ]
    for tree in model["trees"]:
        count = len(tree["left_children"])
        parts.append(struct.pack("<6i", 1, count, 0, 0, features, 0).ljust(148, b"\0"))
        for node in range(count):
            left, right = tree["left_children"][node], tree["right_children"][node]
            parent = tree["parents"][node]
            is_left = parent != 2**31 - 1 and tree["left_children"][parent] == node
            parent = -1 if parent == 2**31 - 1 else parent - (2**31 if is_left else 0)
            split = tree["split_indices"][node] | (int(tree["default_left"][node]) << 31)
            parts.append(struct.pack("<iiiIf", parent, left, right, split, tree["split_conditions"][node]))
        for node in range(count):
            parts.append(struct.pack("<fffi", tree["loss_changes"][node], tree["sum_hessian"][node], 0, 0))
    parts.append(struct.pack(f"<{len(model['tree_info'])}i", *model["tree_info"]))
    return b"".join(parts)
