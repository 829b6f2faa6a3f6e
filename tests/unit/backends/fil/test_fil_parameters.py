"""Every parameter of the fil backend: its meaning, its default, and what it may not be."""

from __future__ import annotations

import numpy as np
import pytest
from fil_models import (
    PROBABILITIES,
    REGRESSOR,
    answer,
    booster,
    config,
    document,
    load,
    model_folder,
    rows,
    trees,
)

from bident.backends.fil.answers import Answer, Kind
from bident.errors import ConfigError

TYPE = {"model_type": "xgboost_json"}


@pytest.fixture
def binary(tmp_path):
    return model_folder(tmp_path / "binary", document(booster()))


@pytest.fixture
def regression(tmp_path):
    return model_folder(tmp_path / "regression", document(booster("reg:squarederror", "real")))


@pytest.fixture
def classes(tmp_path):
    return model_folder(tmp_path / "classes", document(booster("multi:softprob", "classes")))


def expected() -> np.ndarray:
    return booster().inplace_predict(rows(200))


class TestBinary:
    def test_class(self, binary):
        got = answer(load(binary, config({"is_classifier": "true", "threshold": "0.5"})), rows(200))
        np.testing.assert_array_equal(got, (expected() > 0.5).astype(np.float32)[:, None])

    @pytest.mark.parametrize("threshold", ["0.2", "0.9", " 0.5 ", "1e-3", "-1", "7"])
    def test_threshold(self, binary, threshold):
        got = answer(load(binary, config({"is_classifier": "true", "threshold": threshold})), rows(200))
        np.testing.assert_array_equal(got[:, 0], (expected() > np.float32(threshold)).astype(np.float32))

    def test_probability_of_the_positive_class(self, binary):
        got = answer(load(binary, config(PROBABILITIES)), rows(200))
        np.testing.assert_allclose(got, expected()[:, None], atol=1e-5)

    def test_probabilities_of_both_classes(self, binary):
        got = answer(load(binary, config(PROBABILITIES, output=(2,))), rows(200))
        np.testing.assert_allclose(got, np.stack([1 - expected(), expected()], axis=1), atol=1e-5)

    @pytest.mark.parametrize("spelling", [{"is_classifier": "false"}, {"output_class": "false"}])
    def test_as_a_regression(self, binary, spelling):
        np.testing.assert_allclose(answer(load(binary, config(spelling)), rows(200))[:, 0], expected(), atol=1e-5)


class TestThresholdIsExclusive:
    """One tree with leaves of exactly 0: every probability is exactly 0.5."""

    @pytest.mark.parametrize("count", [1, 16, 1000])
    def test_equal_is_not_above(self, tmp_path, count):
        content = document(booster(rounds=1))
        content["learner"]["learner_model_param"]["base_score"] = "[5E-1]"
        (tree,) = trees(content)
        tree["split_conditions"] = [0.0] * len(tree["split_conditions"])
        files = model_folder(tmp_path, content)
        assert not answer(load(files, config({"is_classifier": "true", "threshold": "0.5"})), rows(count)).any()
        assert answer(load(files, config({"is_classifier": "true", "threshold": "0.49999"})), rows(count)).all()


class TestAnswers:
    """Triton's way with ties and with scores that are not positive."""

    @pytest.mark.parametrize(
        ("scores", "largest"),
        [([1, 3, 3], 1), ([-1, -2, -0.5], 0), ([0, 0, 0], 0), ([-1, 0.1, 0], 1), ([np.nan, 0.2, 0.1], 1)],
    )
    def test_largest(self, scores, largest):
        assert Answer(Kind.LARGEST, 1).of(np.array([scores], np.float32)) == [[largest]]


class TestMulticlass:
    def test_class(self, classes):
        inputs = rows(200)
        truth = booster("multi:softprob", "classes").inplace_predict(inputs).argmax(axis=1)
        got = answer(load(classes, config({"is_classifier": "true"})), inputs)
        np.testing.assert_array_equal(got, truth.astype(np.float32)[:, None])

    def test_neither_spelling(self, classes, caplog):
        assert answer(load(classes, config(TYPE | {"predict_proba": "true"}, output=(3,))), rows(3)).shape == (3, 3)
        assert "no parameter is_classifier: true is assumed, because the model is one of multiclass" in caplog.text

    @pytest.mark.parametrize("key", ["output_class", "is_classifier"])
    @pytest.mark.parametrize("proba", ["true", "false"])
    def test_is_no_regression(self, classes, key, proba):
        with pytest.raises(ConfigError, match=rf"{key}: 'false' contradicts .* 3 classes \(allowed: true\)"):
            load(classes, config({key: "false", "predict_proba": proba}, output=(3,)))

    def test_threshold_has_no_effect(self, classes, caplog):
        load(classes, config({"is_classifier": "true", "threshold": "0.3"}))
        assert "parameter threshold has no effect" in caplog.text

    def test_a_threshold_for_triton_alone_is_no_fault(self, classes, caplog):
        load(classes, config(TYPE | {"is_classifier": "true", "output_class": "true", "threshold": "0.5"}))
        assert not caplog.text


class TestDefaults:
    def test_everything_assumed_is_said(self, binary, caplog):
        got = answer(load(binary, config()), rows(200))
        np.testing.assert_array_equal(got[:, 0], (expected() > 0.5).astype(np.float32))
        assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
        assert {record.name for record in caplog.records} == {"bident.fil"}
        for text in ("no parameter model_type: xgboost_json", "no parameter is_classifier: true", "0.5 is assumed"):
            assert text in caplog.text

    def test_a_regression_is_recognised(self, regression, caplog):
        inputs = rows(100)
        got = answer(load(regression, config(TYPE)), inputs)
        np.testing.assert_allclose(got[:, 0], booster("reg:squarederror", "real").inplace_predict(inputs), atol=1e-5)
        assert "is_classifier: false is assumed" in caplog.text

    def test_nothing_to_say(self, binary, caplog):
        load(binary, config(TYPE | {"is_classifier": "true", "threshold": "0.5"}))
        assert caplog.text == ""


class TestContradictions:
    def test_probabilities_of_a_regression(self, regression):
        with pytest.raises(ConfigError, match=r"predict_proba: 'true' needs a classifier.*model is one of regression"):
            load(regression, config({"predict_proba": "true"}))

    def test_probabilities_of_what_is_declared_no_classifier(self, binary):
        with pytest.raises(ConfigError, match=r"predict_proba: 'true' needs a classifier, but is_classifier is false"):
            load(binary, config({"predict_proba": "true", "output_class": "false"}))

    def test_a_regression_called_a_classifier_is_thresholded(self, regression, caplog):
        inputs = rows(100)
        got = answer(load(regression, config({"is_classifier": "true", "threshold": "0.1"})), inputs)
        truth = booster("reg:squarederror", "real").inplace_predict(inputs) > np.float32(0.1)
        np.testing.assert_array_equal(got[:, 0], truth.astype(np.float32))
        assert "is_classifier is true, but the model is one of regression" in caplog.text

    def test_output_class_wins(self, binary, caplog):
        got = answer(load(binary, config({"output_class": "true", "is_classifier": "false"})), rows(50))
        assert set(got.ravel()) <= {0.0, 1.0}
        assert "output_class is deprecated: write is_classifier" in caplog.text


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("threshold", "abc", "a finite number such as 0.5"),
        ("threshold", "nan", "a finite number"),
        ("threshold", "inf", "a finite number"),
        ("threshold", "", "a finite number"),
        ("is_classifier", "yes", "true, false"),
        ("output_class", "1", "true, false"),
        ("predict_proba", "on", "true, false"),
        ("xgboost_allow_unknown_field", "maybe", "true, false"),
        ("layout", "diagonal", "depth_first, breadth_first, layered"),
        ("chunk_size", "1.5", "a whole number"),
        ("transfer_threshold", "many", "a whole number"),
        ("cpu_nthread", "all", "a whole number"),
    ],
)
def test_bad_values_name_the_key_and_what_is_allowed(binary, key, value, allowed):
    with pytest.raises(ConfigError) as refused:
        load(binary, config({key: value}))
    assert f"parameter {key}: '{value}' is not allowed (allowed: {allowed}" in str(refused.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("algo", "ALGO_AUTO"),
        ("algo", "BATCH_TREE_REORG"),
        ("threads_per_tree", "4"),
        ("storage_type", "AUTO"),
        ("storage_type", "SPARSE8"),
        ("blocks_per_sm", "2"),
        ("use_experimental_optimizations", "true"),
    ],
)
def test_deprecated_ones_are_accepted_with_a_warning(binary, caplog, key, value):
    load(binary, config(TYPE | {"is_classifier": "true", "threshold": "0.5", key: value}))
    (record,) = caplog.records
    assert key in record.message
    assert record.levelname == "WARNING"


@pytest.mark.parametrize(
    ("key", "value"),
    [("layout", "layered"), ("chunk_size", "4"), ("transfer_threshold", "9"), ("predict_proba", "True")],
)
def test_good_values_are_accepted_silently(binary, caplog, key, value):
    threshold = {} if key == "predict_proba" else {"threshold": "0.5"}
    load(binary, config(TYPE | {"is_classifier": "true", key: value} | threshold))
    assert caplog.text == ""


def test_an_unknown_parameter(binary, caplog):
    load(binary, config({"treshold": "0.5"}))
    assert "parameter treshold is unknown to fil and has no effect; did you mean 'threshold'?" in caplog.text


@pytest.mark.parametrize("nthread", ["-1", "0", "1", "2"])
def test_threads(binary, nthread):
    instance = load(binary, config(REGRESSOR | {"cpu_nthread": nthread}), threads=2)
    for count in (1, 100, 3000):
        inputs = rows(count)
        np.testing.assert_allclose(answer(instance, inputs)[:, 0], booster().inplace_predict(inputs), atol=1e-5)
