"""``bident add``: what a file is, and the folder that is made of it."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import onnx
import pytest
import treelite
import xgboost
from google.protobuf import text_format
from onnx import TensorProto, helper

from bident.cli.detect import detect
from bident.doctor.check import Patient
from bident.doctor.models.fil_parameters import FilParameters
from bident.errors import ServeError
from bident.local import process
from bident.local.record import STATE_DIR, Record
from bident.model.proto import pb
from tests.unit.cli.conftest import Bident, FakeServer

RNG = np.random.default_rng(0)
X = RNG.random((80, 3), np.float32)
Y = (X[:, 0] > 0.5).astype(int)


def onnx_model(*shape: int | str) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def booster() -> xgboost.Booster:
    return xgboost.train({"max_depth": 2, "objective": "binary:logistic"}, xgboost.DMatrix(X, Y), 3)


def legacy_xgboost() -> bytes:
    """The start of a file of XGBoost 0.x: parameters, then the names of objective and booster."""
    objective, name = b"binary:logistic", b"gbtree"
    return bytes(136) + struct.pack("<Q", len(objective)) + objective + struct.pack("<Q", len(name)) + name + bytes(160)


def write_tree(kind: str, path: Path) -> None:
    if kind == "lightgbm":
        data = lightgbm.Dataset(X, Y)
        lightgbm.train({"verbose": -1, "num_leaves": 4, "min_data_in_leaf": 2}, data, 2).save_model(str(path))
    elif kind == "treelite_checkpoint":
        treelite.frontend.from_xgboost(booster()).serialize(str(path))
    elif kind == "xgboost":
        path.write_bytes(legacy_xgboost())
    else:
        path.write_bytes(bytes(booster().save_raw(kind.removeprefix("xgboost_"))))


@pytest.mark.parametrize(
    ("kind", "file_name"),
    [
        ("xgboost_json", "xgboost.json"),
        ("xgboost_ubj", "xgboost.ubj"),
        ("xgboost", "xgboost.model"),
        ("lightgbm", "model.txt"),
        ("treelite_checkpoint", "checkpoint.tl"),
    ],
)
def test_tree_models_are_told_by_content(tmp_path: Path, kind: str, file_name: str) -> None:
    path = tmp_path / "some.bin"
    write_tree(kind, path)
    found = detect(path)
    assert (found.backend, found.file_name, dict(found.parameters)) == ("fil", file_name, {"model_type": kind})


def test_onnx_is_told_by_content(tmp_path: Path) -> None:
    path = tmp_path / "renamed.dat"
    onnx.save(onnx_model("n", 3), str(path))
    assert (detect(path).backend, detect(path).file_name) == ("onnxruntime", "model.onnx")


def archive(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        for name in names:
            made.writestr(name, "")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"GGUF\x03\x00\x00\x00", "it belongs to the text engine; give it that with 'bident pull "),
        (pickle.dumps({"a": [1, 2]}), "Export the model instead (scikit-learn: skl2onnx"),
        (archive("m/data.pkl", "m/code/x.py"), "a TorchScript model"),
        (archive("m/data.pkl"), "torch.onnx.export"),
        (archive("config.json", "model.weights.h5"), "is a Keras model"),
        (archive("other"), "unpack it"),
        (b"PK\x03\x04damaged", "is damaged"),
        (b"\x89HDF\r\n\x1a\n", "tf2onnx"),
        (b"\x1c\x00\x00\x00TFL3", "TensorFlow Lite"),
        (struct.pack("<Q", 4) + b'{"a"}' + b"\0" * 20, "safetensors"),
        (b'<?xml version="1.0"?><net name="x">', "is an OpenVINO model"),
        (b"", "is empty"),
        (onnx_model("n", 3).SerializeToString()[:-20], "is truncated or damaged"),
        (b"\0\1\2damaged\xff" * 20, "is truncated or damaged"),
        (b"class TritonPythonModel:\n  def", "is not Python that this Python can read"),
        (b'{"a": 1}', "is none of the models Bident knows"),
        (b"some text", "is none of the models Bident knows"),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_way_out(
    bident: Bident, tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    result = bident("add", path)
    assert result.code == 1
    assert message in result.err
    assert not Path("model_repository").exists()


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: None])
def test_folders_and_nothing_at_all(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    make(tmp_path / "x")
    with pytest.raises(ServeError):
        detect(tmp_path / "x")


def test_a_pickle_is_recognised_without_being_opened(bident: Bident, tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "exploded",)

    (tmp_path / "m.pkl").write_bytes(pickle.dumps(Bomb()))
    assert bident("add", tmp_path / "m.pkl").code == 1
    assert not (tmp_path / "exploded").exists()


def test_the_folder_is_complete_and_explains_itself(bident: Bident, tmp_path: Path) -> None:
    onnx.save(onnx_model("n", 3), str(tmp_path / "My model.v2.onnx"))
    result = bident("add", tmp_path / "My model.v2.onnx")
    assert result.code == 0, result.err
    folder = Path("model_repository/My_model_v2")
    assert (folder / "1" / "model.onnx").read_bytes() == (tmp_path / "My model.v2.onnx").read_bytes()
    text = (folder / "config.pbtxt").read_text(encoding="utf-8")
    config = text_format.Parse(text, pb.ModelConfig())
    assert (config.name, config.backend, config.max_batch_size) == ("My_model_v2", "onnxruntime", 64)
    assert "Triton's default would be 4" in text
    assert (config.input[0].name, list(config.input[0].dims)) == ("x", [3])
    assert config.HasField("dynamic_batching")
    fields = [line for line in text.splitlines() if line and not line.startswith(("#", " ", "}"))]
    for field in fields:
        assert text[: text.index(f"\n{field}")].splitlines()[-1].startswith("#"), field
    assert "tensor engine, backend onnxruntime" in result.out
    assert "Next: 'bident up'" in result.out


@pytest.mark.parametrize("kind", ["xgboost_json", "xgboost_ubj", "lightgbm", "treelite_checkpoint"])
def test_trees_say_all_that_triton_demands(bident: Bident, tmp_path: Path, kind: str) -> None:
    write_tree(kind, tmp_path / "trees.bin")
    result = bident("add", tmp_path / "trees.bin")
    assert result.code == 0, result.err
    text = Path("model_repository/trees/config.pbtxt").read_text(encoding="utf-8")
    config = text_format.Parse(text, pb.ModelConfig())
    said = {key: value.string_value for key, value in config.parameters.items()}
    if kind == "lightgbm":  # trained without an objective of its own: a regression
        assert said == {"model_type": kind, "is_classifier": "false", "output_class": "false"}
    else:
        assert said == {"model_type": kind, "is_classifier": "true", "output_class": "true", "threshold": "0.5"}
    assert not list(FilParameters().examine(Patient(repository=Path("model_repository"), target="triton:25.05")))
    assert list(config.input[0].dims) == [3]
    assert list(config.output[0].dims) == [1]
    assert config.max_batch_size > 1


def test_a_model_without_a_batch_dimension(bident: Bident, tmp_path: Path) -> None:
    onnx.save(onnx_model(2, 3), str(tmp_path / "m.onnx"))
    assert bident("add", tmp_path / "m.onnx", "--repo", "r", "--name", "fixed").code == 0
    config = text_format.Parse(Path("r/fixed/config.pbtxt").read_text(encoding="utf-8"), pb.ModelConfig())
    assert config.max_batch_size == 0
    assert list(config.input[0].dims) == [2, 3]


def test_weights_in_files_beside_the_model_come_along(bident: Bident, tmp_path: Path) -> None:
    model = onnx_model("n", 3)
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3], np.ones(3, np.float32).tobytes(), raw=True)
    model.graph.initializer.append(weight)
    model.graph.node.append(helper.make_node("Identity", ["w"], ["unused"]))
    onnx.save(model, str(tmp_path / "m.onnx"), save_as_external_data=True, location="w.bin", size_threshold=0)
    assert bident("add", tmp_path / "m.onnx").code == 0
    assert Path("model_repository/m/1/w.bin").read_bytes() == (tmp_path / "w.bin").read_bytes()
    (tmp_path / "w.bin").unlink()
    result = bident("add", tmp_path / "m.onnx", "--name", "again")
    assert result.code == 1
    assert "keeps its weights in 'w.bin', which is not beside it" in result.err
    assert not Path("model_repository/again").exists()


def test_nothing_is_overwritten(bident: Bident, tmp_path: Path) -> None:
    onnx.save(onnx_model("n", 3), str(tmp_path / "m.onnx"))
    assert bident("add", tmp_path / "m.onnx").code == 0
    result = bident("add", tmp_path / "m.onnx")
    assert result.code == 1
    assert "choose another --name" in result.err


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", "a b"])
def test_names_that_are_no_folder(bident: Bident, tmp_path: Path, name: str) -> None:
    onnx.save(onnx_model("n", 3), str(tmp_path / "m.onnx"))
    result = bident("add", tmp_path / "m.onnx", "--name", name)
    assert result.code == 2
    assert "cannot be a model name" in result.err


@pytest.mark.parametrize(
    ("mode", "message"),
    [("explicit", "bident load m"), ("none", "bident restart"), ("poll", "will find it by itself")],
)
def test_the_next_step_depends_on_the_server(
    bident: Bident, server: FakeServer, tmp_path: Path, mode: str, message: str
) -> None:
    Path(STATE_DIR).mkdir()
    own = Record(os.getpid(), process.born(os.getpid()), server.url, "", "127.0.0.1", mode, 30, "log")
    own.write(Path(STATE_DIR))
    onnx.save(onnx_model("n", 3), str(tmp_path / "m.onnx"))
    assert message in bident("add", tmp_path / "m.onnx").out
    assert message in bident("add", tmp_path / "m.onnx", "--name=m2", "--url", server.url).out.replace("m2", "m")


def test_a_server_of_somebody_else_is_not_asked(
    bident: Bident, server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bident.cli.target.DEFAULT_URL", server.url)
    onnx.save(onnx_model("n", 3), str(tmp_path / "m.onnx"))
    result = bident("add", tmp_path / "m.onnx")
    assert (result.code, result.err) == (0, "")
    assert "Next: 'bident up'" in result.out
    assert server.paths == []
    # Nor is a server that has died taken for one that runs.
    Path(STATE_DIR).mkdir()
    Record(os.getpid(), 1.0, server.url, "", "127.0.0.1", "explicit", 30, "log").write(Path(STATE_DIR))
    assert "Next: 'bident up'" in bident("add", tmp_path / "m.onnx", "--name=n").out
    assert server.paths == []


@pytest.mark.parametrize("suffix", [".json", ".textproto", ".pbtxt", ".onnxtxt"])
@pytest.mark.parametrize("content", [b'{"layers": [1]}', b"ir_version: x {", b"\0\1"])
def test_what_a_file_is_called_chooses_no_parser(bident: Bident, tmp_path: Path, suffix: str, content: bytes) -> None:
    (tmp_path / f"x{suffix}").write_bytes(content)
    result = bident("add", tmp_path / f"x{suffix}")
    assert result.code == 1
    assert "is none of the models Bident knows" in result.err
    assert "fault in Bident" not in result.err
    onnx.save(onnx_model("n", 3), str(tmp_path / f"whole{suffix}"), format="protobuf")
    added = bident("add", tmp_path / f"whole{suffix}")
    assert added.code == 0, added.err


def test_a_file_that_fails_later_is_named_as_the_user_knows_it(bident: Bident, tmp_path: Path) -> None:
    write_tree("xgboost_json", tmp_path / "whole.json")
    damaged = tmp_path / "damaged.json"
    damaged.write_bytes((tmp_path / "whole.json").read_bytes()[:-300])
    result = bident("add", damaged, "--repo", "deep/er")
    assert result.code == 1
    assert str(damaged) in result.err
    assert ".zoo-" not in result.err
    assert not Path("deep").exists()


def test_probabilities_instead_of_classes(bident: Bident, tmp_path: Path) -> None:
    write_tree("xgboost_json", tmp_path / "two.json")
    three = {"objective": "multi:softprob", "num_class": 3, "max_depth": 2}
    classes = (X[:, 0] * 2.99).astype(int)
    xgboost.train(three, xgboost.DMatrix(X, classes), 2).save_model(str(tmp_path / "three.json"))
    assert bident("add", tmp_path / "two.json", "--proba").code == 0
    assert bident("add", tmp_path / "three.json", "--proba").code == 0
    assert bident("add", tmp_path / "three.json", "--name", "decided").code == 0
    said = {}
    for name in ("two", "three", "decided"):
        text = Path("model_repository", name, "config.pbtxt").read_text(encoding="utf-8")
        config = text_format.Parse(text, pb.ModelConfig())
        more = {key: value.string_value for key, value in config.parameters.items() if key != "model_type"}
        said[name] = (list(config.output[0].dims), more)
    # Triton demands a threshold of every classifier, though it decides between two classes alone.
    classifier = {"is_classifier": "true", "output_class": "true", "threshold": "0.5"}
    probabilities = {**classifier, "predict_proba": "true"}
    assert said == {"two": ([2], probabilities), "three": ([3], probabilities), "decided": ([1], classifier)}


def test_probabilities_of_what_has_none(bident: Bident, tmp_path: Path) -> None:
    write_tree("lightgbm", tmp_path / "m.txt")
    onnx.save(onnx_model("n", 3), str(tmp_path / "m.onnx"))
    assert "--proba is for classifiers" in bident("add", tmp_path / "m.txt", "--proba").err
    assert "--proba is for tree models" in bident("add", tmp_path / "m.onnx", "--proba").err
    assert not Path("model_repository").exists()
