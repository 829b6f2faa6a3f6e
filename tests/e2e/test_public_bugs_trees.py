"""What people report of tree models: formats newer than the server, parameters, explanations, odd tensor names."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest
import xgboost
from asking import Asker, tensor
from bug_models import Shared
from model_folders import declared, parameters
from numpy.typing import NDArray

FEATURES = 4


@dataclass(frozen=True)
class Trained:
    rows: NDArray[np.float32]
    regressor: Any
    multiclass: Any
    lightgbm: Any


@pytest.fixture(scope="module")
def trained() -> Trained:
    """Three small models on the same invented data."""
    random = np.random.default_rng(7)
    rows = random.normal(size=(80, FEATURES)).astype(np.float32)
    target = rows[:, 0] * 2 - rows[:, 1]
    classes = np.digitize(target, [-1, 1])
    multiclass = {"objective": "multi:softprob", "num_class": 3, "nthread": 1}
    return Trained(
        rows,
        xgboost.train({"nthread": 1}, xgboost.DMatrix(rows, target), 3),
        xgboost.train(multiclass, xgboost.DMatrix(rows, classes), 3),
        lightgbm.train(
            {"num_threads": 1, "verbose": -1, "min_data_in_leaf": 3}, lightgbm.Dataset(rows.astype(float), target), 3
        ),
    )


def fil(output_dims: str = "[ 1 ]", tensors: str = "", **given: str) -> str:
    """A config as the documentation of other servers shows it."""
    tensors = tensors or (
        declared("input", "input__0", dims=f"[ {FEATURES} ]") + declared("output", "output__0", dims=output_dims)
    )
    return f'backend: "fil"\nmax_batch_size: 8\n{tensors}{parameters(**given)}'


def asked(ask: Asker, model: str, rows: NDArray[Any], name: str = "input__0", datatype: str = "FP32") -> Any:
    return ask.infer(model, tensor(name, datatype, list(rows.shape), rows.ravel().tolist()))


# XGBoost files newer than the server.


@pytest.mark.parametrize(("file", "model_type"), [("xgboost_json", "xgboost_json"), ("xgboost_ubj", "xgboost_ubj")])
def test_a_file_of_the_newest_xgboost_answers_what_xgboost_answers(
    shared: Shared, ask: Asker, trained: Trained, file: str, model_type: str
) -> None:
    raw = bytes(trained.regressor.save_raw(model_type.removeprefix("xgboost_")))
    assert shared.offer(f"new_{file}", fil(model_type=model_type, is_classifier="false"), **{file: raw}).status == 200
    rows = trained.rows[:8]
    np.testing.assert_allclose(
        asked(ask, f"new_{file}", rows).data("output__0"),
        trained.regressor.predict(xgboost.DMatrix(rows)),
        rtol=1e-5,
        atol=1e-5,
    )


def test_fields_that_nobody_knows_yet_are_passed_over(shared: Shared, ask: Asker, trained: Trained) -> None:
    document = json.loads(bytes(trained.regressor.save_raw("json")))
    document["learner"]["invented_in_2030"] = {"x": [1, 2]}
    document["learner"]["gradient_booster"]["model"]["trees"][0]["invented_too"] = [1.5]
    document["version"] = [9, 1, 0]
    text = json.dumps(document)
    assert shared.offer("future", fil(model_type="xgboost_json"), xgboost_json=text).status == 200
    expected = trained.regressor.predict(xgboost.DMatrix(trained.rows[:2]))
    np.testing.assert_allclose(asked(ask, "future", trained.rows[:2]).data("output__0"), expected, rtol=1e-5)


def test_a_file_that_cannot_be_read_is_named_with_its_version_and_the_supported_ones(
    shared: Shared, ask: Asker, trained: Trained
) -> None:
    document = json.loads(bytes(trained.regressor.save_raw("json")))
    document["version"] = [9, 1, 0]
    document["learner"]["gradient_booster"] = {"name": "gbforest2030"}
    shared.offer("unreadable", fil(model_type="xgboost_json"), xgboost_json=json.dumps(document)).refused(
        "load failed for model 'unreadable'", "xgboost.json", "XGBoost 9.1.0", "Supported: XGBoost 0.9 to 3.x"
    )


def test_ubjson_under_the_name_of_json_is_recognised(shared: Shared, ask: Asker, trained: Trained) -> None:
    raw = bytes(trained.regressor.save_raw("ubj"))
    message = shared.offer("ubj_as_json", fil(model_type="xgboost_json"), xgboost_json=raw).refused(
        "xgboost.json", "UBJSON", "model_type to 'xgboost_ubj'"
    )
    assert "offset" not in message


# Parameters missing or contradictory, which ended another server's process.


@pytest.mark.parametrize("given", [{}, {"model_type": "xgboost_json"}], ids=["no-model_type", "model_type"])
def test_probabilities_of_many_classes_need_no_more_than_the_wish_for_them(
    shared: Shared, ask: Asker, trained: Trained, given: dict[str, str]
) -> None:
    name = f"proba_{len(given)}"
    raw = bytes(trained.multiclass.save_raw("json"))
    assert shared.offer(name, fil("[ 3 ]", predict_proba="true", **given), xgboost_json=raw).status == 200
    output = asked(ask, name, trained.rows[:5]).output("output__0")
    assert output["shape"] == [5, 3]
    expected = trained.multiclass.predict(xgboost.DMatrix(trained.rows[:5]))
    np.testing.assert_allclose(output["data"], expected.ravel(), rtol=1e-5)


@pytest.mark.parametrize("key", ["is_classifier", "output_class"])
def test_both_spellings_of_classifier_are_understood(shared: Shared, ask: Asker, trained: Trained, key: str) -> None:
    raw = bytes(trained.multiclass.save_raw("json"))
    assert shared.offer(f"by_{key}", fil(model_type="xgboost_json", **{key: "true"}), xgboost_json=raw).status == 200
    expected = trained.multiclass.predict(xgboost.DMatrix(trained.rows[:5])).argmax(axis=1)
    assert asked(ask, f"by_{key}", trained.rows[:5]).data("output__0") == expected.tolist()


@pytest.mark.parametrize(
    ("dims", "given", "fragments"),
    [
        ("[ 3 ]", {"predict_proba": "true", "output_class": "false"}, ["output_class", "3 classes", "allowed: true"]),
        ("[ 1 ]", {"is_classifier": "false"}, ["is_classifier", "3 classes", "allowed: true"]),
        ("[ 1 ]", {"threshold": "abc"}, ["threshold", "'abc'", "finite number"]),
        ("[ 1 ]", {"is_classifier": "yes"}, ["is_classifier", "'yes'", "true, false"]),
        ("[ 1 ]", {"model_type": "xgb_json"}, ["model_type", "did you mean 'xgboost_json'?"]),
        ("[ 2 ]", {"predict_proba": "true"}, ["output__0", "[2]", "set dims: [ 3 ]"]),
        ("[ 3 ]", {}, ["output__0", "set dims: [ 1 ]", "predict_proba to 'true'"]),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_a_parameter_that_cannot_be_meant_is_named_at_load(
    shared: Shared,
    ask: Asker,
    trained: Trained,
    request: pytest.FixtureRequest,
    dims: str,
    given: dict[str, str],
    fragments: list[str],
) -> None:
    name = f"wrong_{zlib.crc32(request.node.name.encode())}"
    raw = bytes(trained.multiclass.save_raw("json"))
    shared.offer(name, fil(dims, **given), xgboost_json=raw).refused(f"load failed for model '{name}'", *fragments)
    (row,) = ask.index()[name]
    assert row["state"] == "UNAVAILABLE"
    assert fragments[0] in row["reason"]


# LightGBM: thresholds in double, rows in float; explanations beside the answer.


def test_lightgbm_takes_floats_and_no_row_on_a_threshold_changes_sides(
    shared: Shared, ask: Asker, trained: Trained
) -> None:
    text = trained.lightgbm.model_to_string()
    assert shared.offer("lgbm", fil(model_type="lightgbm"), model_txt=text).status == 200
    rows = _rows_on_thresholds(text)
    answered: list[float] = []
    for start in range(0, len(rows), 8):
        answered += asked(ask, "lgbm", rows[start : start + 8]).data("output__0")
    np.testing.assert_allclose(answered, trained.lightgbm.predict(rows.astype(float)), rtol=1e-5, atol=1e-6)


def _rows_on_thresholds(text: str) -> NDArray[np.float32]:
    """Rows whose features are the floats next to the model's thresholds, below, at and above.

    Not around zero: LightGBM's Python package makes zeros of what is smaller than 1e-35 before its trees see it.
    """
    lines = [line.partition("=")[2].split() for line in text.splitlines() if line.startswith("threshold=")]
    thresholds = np.array([float(word) for words in lines for word in words], np.float32)
    thresholds = thresholds[np.abs(thresholds) > 1e-30]
    assert len(thresholds) > 10
    near = [np.nextafter(thresholds, np.float32(-9)), thresholds, np.nextafter(thresholds, np.float32(9))]
    return np.repeat(np.concatenate(near)[:, None], FEATURES, axis=1)


def test_explanations_come_beside_the_answer_and_are_lightgbms(shared: Shared, ask: Asker, trained: Trained) -> None:
    tensors = (
        declared("input", "input__0", dims=f"[ {FEATURES} ]")
        + declared("output", "output__0", dims="[ 1 ]")
        + declared("output", "treeshap_output", dims=f"[ {FEATURES + 1} ]")
    )
    config = fil(tensors=tensors, model_type="lightgbm")
    assert shared.offer("shap", config, model_txt=trained.lightgbm.model_to_string()).status == 200
    rows = trained.rows[:8]
    answer = asked(ask, "shap", rows)
    expected = trained.lightgbm.predict(rows.astype(float), pred_contrib=True)
    np.testing.assert_allclose(answer.data("treeshap_output"), expected.ravel(), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(answer.data("output__0"), expected.sum(axis=1), rtol=1e-4, atol=1e-5)


def test_explanations_that_cannot_be_given_are_refused_at_load(shared: Shared, ask: Asker, trained: Trained) -> None:
    tensors = (
        declared("input", "input__0", dims=f"[ {FEATURES} ]")
        + declared("output", "output__0", dims="[ 1 ]")
        + declared("output", "treeshap_output", dims="[ 3 ]")
    )
    config = fil(tensors=tensors, model_type="lightgbm")
    shared.offer("shap_of_3", config, model_txt=trained.lightgbm.model_to_string()).refused(
        "treeshap_output", f"set dims: [ {FEATURES + 1} ]"
    )


# Names and datatypes other than the backend's own.


def test_tensors_may_be_called_anything_and_be_integers(shared: Shared, ask: Asker, trained: Trained) -> None:
    tensors = declared("input", "features", "INT16", f"[ {FEATURES} ]") + declared("output", "OUTPUT__0", dims="[ 1 ]")
    raw = bytes(trained.regressor.save_raw("json"))
    assert shared.offer("own_names", fil(tensors=tensors, model_type="xgboost_json"), xgboost_json=raw).status == 200
    rows = np.array([[1, -1, 0, 2], [-2, 1, 1, 0]], np.int16)
    expected = trained.regressor.predict(xgboost.DMatrix(rows.astype(np.float32)))
    answered = asked(ask, "own_names", rows, "features", "INT16").data("OUTPUT__0")
    np.testing.assert_allclose(answered, expected, rtol=1e-5)


def test_no_error_speaks_of_a_name_that_nobody_sent(ask: Asker, shared: Shared, trained: Trained) -> None:
    tensors = declared("input", "features", "INT16", f"[ {FEATURES} ]") + declared("output", "answer", dims="[ 1 ]")
    raw = bytes(trained.regressor.save_raw("json"))
    assert shared.offer("silent", fil(tensors=tensors, model_type="xgboost_json"), xgboost_json=raw).status == 200
    for answer in (
        asked(ask, "silent", np.zeros((1, FEATURES)), "feature", "FP32"),
        asked(ask, "silent", np.zeros((1, FEATURES)), "features", "FP32"),
        asked(ask, "silent", np.zeros((1, 3), int), "features", "INT16"),
    ):
        assert "input__0" not in answer.refused("'features'")


def test_a_string_input_is_refused_at_load(shared: Shared, ask: Asker, trained: Trained) -> None:
    tensors = declared("input", "features", "BYTES", f"[ {FEATURES} ]") + declared("output", "answer", dims="[ 1 ]")
    raw = bytes(trained.regressor.save_raw("json"))
    shared.offer("text_rows", fil(tensors=tensors), xgboost_json=raw).refused("'features'", "TYPE_FP32")


def test_a_pickle_is_never_loaded(shared: Shared, ask: Asker, tmp_path: Path) -> None:
    import pickle

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "sprung",))

    shared.offer("pickled", fil(), xgboost_model=pickle.dumps(Trap())).refused("is a Python pickle", "save_model")
    assert not (tmp_path / "sprung").exists()
