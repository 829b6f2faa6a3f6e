"""``fraud_xgb``: gradient-boosted trees on 32 numbers, saved by whatever XGBoost is installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bident.zoo.extras import need
from bident.zoo.folder import model_path, write_config
from bident.zoo.recipe import Facts, Question, Recipe, Report, Tensors, output, wrong_answer

_FEATURES = 32
_THRESHOLD = 0.5

_CONFIG = """
# A fraud detector: 100 boosted trees over 32 features. The answer is the class, 0.0 or 1.0.
backend: "fil"
max_batch_size: 8192
input  [ { name: "input__0", data_type: TYPE_FP32, dims: [ 32 ] } ]
output [ { name: "output__0", data_type: TYPE_FP32, dims: [ 1 ] } ]
instance_group [ { count: 1, kind: KIND_AUTO } ]
parameters [
  # The file format; "xgboost_ubj", "lightgbm" and "treelite_checkpoint" are others.
  { key: "model_type",    value: { string_value: "xgboost_json" } },
  # "true": answer the class. "false": answer the probability of class 1. Triton's name for it from
  # 25.09 on, and the one before.
  { key: "is_classifier", value: { string_value: "true" } },
  { key: "output_class",  value: { string_value: "true" } },
  # From which probability on a case counts as class 1.
  { key: "threshold",     value: { string_value: "0.5" } }
]
# Requests that arrive together run together.
dynamic_batching {}
"""


def _write(folder: Path, report: Report) -> Facts:
    report("training 100 trees", None)
    xgboost, datasets = need("xgboost"), need("sklearn.datasets")
    features, labels = datasets.make_classification(n_samples=2000, n_features=_FEATURES, random_state=0)
    model = xgboost.XGBClassifier(n_estimators=100, max_depth=6, tree_method="hist")
    booster = model.fit(features, labels).get_booster()
    booster.save_model(model_path(folder, "xgboost.json"))
    write_config(folder, _CONFIG)
    probability = float(booster.predict(xgboost.DMatrix(_zeros()["input__0"]))[0])
    return Facts(
        synthetic=False,
        origin=f"trained here with XGBoost {xgboost.__version__} on generated data",
        expected={"probability": probability, "class": float(probability >= _THRESHOLD)},
    )


def _zeros() -> Tensors:
    return {"input__0": np.zeros((1, _FEATURES), np.float32)}


def _questions(facts: Facts) -> list[Question]:
    expected: float = facts.expected["class"]

    def check(answer: Tensors) -> str:
        got = float(output(answer, "output__0", (1, 1))[0, 0])
        if got != expected:
            raise wrong_answer(f"class {expected}, as booster.predict says", str(got))
        return f"class {got:.0f}"

    return [Question("zero vector", _zeros, check)]


RECIPE = Recipe(
    name="fraud_xgb",
    summary="fraud detector, 100 XGBoost trees",
    backend="fil",
    version=1,
    write=_write,
    questions=_questions,
)
