"""LightGBM models and treelite checkpoints give the predictions of the library that trained them."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import treelite
from fil_models import CLASSES, PROBABILITIES, REGRESSOR, answer, config, lightgbm_booster, load, model_folder, rows
from sklearn.ensemble import IsolationForest, RandomForestClassifier

from bident.errors import ConfigError

OBJECTIVES = {
    "regression": "real",
    "regression_l1": "real",
    "huber": "real",
    "fair": "real",
    "quantile": "positive",
    "mape": "positive",
    "poisson": "positive",
    "gamma": "positive",
    "tweedie": "positive",
    "binary": "binary",
    "cross_entropy": "binary",
    "cross_entropy_lambda": "binary",
    "lambdarank": "binary",
    "rank_xendcg": "binary",
}
AVERAGED = {"boosting": "rf", "bagging_fraction": 0.6, "bagging_freq": 1}


@pytest.mark.parametrize(("objective", "kind"), OBJECTIVES.items())
def test_every_objective_with_one_output(tmp_path, objective, kind):
    model = lightgbm_booster(objective, kind)
    instance = load(model_folder(tmp_path, model.model_to_string(), "model.txt"), config(REGRESSOR))
    for count in (1, 2, 17, 1000):
        inputs = rows(count)
        expected = model.predict(inputs.astype(np.float64))
        np.testing.assert_allclose(answer(instance, inputs)[:, 0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"reg_sqrt": True},
        {"use_missing": False},
        {"missing": 0.0},
        {"zero_as_missing": True},
        {"zero_as_missing": True, "missing": 0.0},
        {"boosting": "dart"},
        AVERAGED,
    ],
    ids=str,
)
def test_settings(tmp_path, settings):
    model = lightgbm_booster("regression", "real", **settings)
    instance = load(model_folder(tmp_path, model.model_to_string(), "model.txt"), config(REGRESSOR))
    inputs = rows(800)
    inputs[3::50, 2] = 1e-36
    inputs[4::50, 1] = -1e-36
    given = inputs.copy()
    expected = model.predict(inputs.astype(np.float64))
    np.testing.assert_allclose(answer(instance, inputs)[:, 0], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(inputs, given, err_msg="the request's own tensor was changed")


@pytest.mark.parametrize("objective", ["multiclass", "multiclassova"])
@pytest.mark.parametrize("settings", [{}, AVERAGED], ids=str)
def test_multiclass(tmp_path, objective, settings):
    model = lightgbm_booster(objective, "classes", **settings)
    files = model_folder(tmp_path, model.model_to_string(), "model.txt")
    inputs = rows(500)
    expected = model.predict(inputs.astype(np.float64))
    np.testing.assert_allclose(answer(load(files, config(PROBABILITIES, output=(3,))), inputs), expected, atol=1e-5)
    got = answer(load(files, config(CLASSES)), inputs)[:, 0]
    np.testing.assert_array_equal(got, expected.argmax(axis=1))


@pytest.mark.parametrize("onehot", [1, 100])
def test_categorical_features(tmp_path, onehot):
    model = lightgbm_booster(categorical=True, max_cat_to_onehot=onehot)
    instance = load(model_folder(tmp_path, model.model_to_string(), "model.txt"), config(PROBABILITIES))
    inputs = rows(300)
    inputs[:, 0] = np.random.default_rng(0).integers(0, 30, 300)
    inputs[:6, 0] = [-1, 50, 1000, 2.7, np.nan, 29]
    expected = model.predict(inputs.astype(np.float64))
    np.testing.assert_allclose(answer(instance, inputs)[:, 0], expected, atol=1e-5)


def test_thresholds_in_float64_never_flip(tmp_path):
    """A float32 value that equals, or lies next to, a float64 threshold goes LightGBM's way."""
    model = lightgbm_booster("regression", "real")
    instance = load(model_folder(tmp_path, model.model_to_string(), "model.txt"), config(REGRESSOR))
    lines = [line for line in model.model_to_string().splitlines() if line.startswith("threshold=")]
    thresholds = np.array(" ".join(line.partition("=")[2] for line in lines).split(), np.float64)
    exact = thresholds.astype(np.float32)
    values = np.concatenate([exact, np.nextafter(exact, np.float32(-9)), np.nextafter(exact, np.float32(9))])
    for feature in range(6):
        inputs = np.zeros((len(values), 6), np.float32)
        inputs[:, feature] = values
        expected = model.predict(inputs.astype(np.float64))
        for engine in instance.choice.engines:
            np.testing.assert_allclose(engine.scores(inputs)[:, 0], expected, atol=1e-5)


def test_fp32_is_accepted_together_with_contributions(tmp_path):
    model = lightgbm_booster("regression", "real")
    files = model_folder(tmp_path, model.model_to_string(), "model.txt")
    inputs = rows(5)
    got = load(files, config(REGRESSOR, contributions=7)).execute({"input__0": inputs})
    np.testing.assert_allclose(got["treeshap_output"], model.predict(inputs, pred_contrib=True), atol=1e-5)


class TestBadFiles:
    @pytest.fixture
    def text(self) -> str:
        return lightgbm_booster().model_to_string()

    @pytest.mark.parametrize("share", [0.2, 0.4, 0.6])
    def test_cut_short(self, tmp_path, text, share):
        files = model_folder(tmp_path, text[: int(len(text) * share)], "model.txt")
        with pytest.raises(ConfigError, match=r"model\.txt.*(cut short|damaged).*LightGBM format v4"):
            load(files, config(CLASSES))

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("num_leaves=9", "num_leaves=999999999"),
            ("num_class=1", "num_class=1000000000"),
            ("max_feature_idx=5", "max_feature_idx=x"),
            ("leaf_value=", "leaf_value=1 "),
            ("left_child=", "left_child=7 "),
            ("right_child=", "right_child=x "),
            ("decision_type=", "decision_type=1 "),
            ("threshold=", "threshold=0.5 "),
        ],
    )
    def test_damaged(self, tmp_path, text, old, new):
        assert old in text
        with pytest.raises(ConfigError, match="is damaged"):
            load(model_folder(tmp_path, text.replace(old, new, 1), "model.txt"), config(CLASSES))

    @pytest.mark.parametrize("field", ["left_child", "right_child"])
    @pytest.mark.parametrize("value", [0, 1, 99, -1, -99])
    def test_children_that_treelite_would_follow(self, tmp_path, text, field, value):
        """It crashes on these, or does not come back."""
        head, _, rest = text.partition(f"{field}=")
        line, _, tail = rest.partition("\n")
        children = line.split()
        children[1] = str(value)
        broken = f"{head}{field}={' '.join(children)}\n{tail}"
        assert broken != text
        with pytest.raises(ConfigError, match="is damaged"):
            load(model_folder(tmp_path, broken, "model.txt"), config(CLASSES))

    @pytest.mark.parametrize("value", [1, 7, 9])
    def test_a_categorical_split_without_categories(self, tmp_path, text, value):
        head, _, rest = text.partition("decision_type=")
        broken = f"{head}decision_type={value}{rest[rest.index(' ') :]}"
        with pytest.raises(ConfigError, match="categories that do not exist"):
            load(model_folder(tmp_path, broken, "model.txt"), config(CLASSES))

    def test_a_feature_that_does_not_exist(self, tmp_path, text):
        head, _, rest = text.partition("split_feature=")
        broken = f"{head}split_feature=77{rest[1:]}"
        with pytest.raises(ConfigError, match="tests feature 77, but rows have 6 features"):
            load(model_folder(tmp_path, broken, "model.txt"), config(CLASSES))

    def test_linear_trees(self, tmp_path):
        text = lightgbm_booster("regression", "real", linear_tree=True, missing=0.0).model_to_string()
        with pytest.raises(ConfigError, match="linear trees"):
            load(model_folder(tmp_path, text, "model.txt"), config(REGRESSOR))

    def test_zero_as_missing_in_some_trees_only(self, tmp_path):
        text = lightgbm_booster("regression", "real", zero_as_missing=True).model_to_string()
        head, _, rest = text.partition("decision_type=")
        line, _, tail = rest.partition("\n")
        mixed = " ".join(str(int(value) ^ 0b1100) for value in line.split())
        with pytest.raises(ConfigError, match="zero as missing in some trees only"):
            load(model_folder(tmp_path, f"{head}decision_type={mixed}\n{tail}", "model.txt"), config(REGRESSOR))


class TestCheckpoints:
    @pytest.fixture
    def data(self) -> bytes:
        text = lightgbm_booster().model_to_string()
        return treelite.frontend.from_lightgbm(lightgbm_booster()).serialize_bytes() if text else b""

    def test_predictions(self, tmp_path, data):
        files = model_folder(tmp_path, data, "checkpoint.tl")
        inputs = rows(100)
        got = answer(load(files, config(PROBABILITIES | {"model_type": "treelite_checkpoint"})), inputs)
        np.testing.assert_allclose(got[:, 0], lightgbm_booster().predict(inputs.astype(np.float64)), atol=1e-5)

    @pytest.mark.parametrize("classes", [2, 3])
    def test_scikit_learns_leaf_vectors(self, tmp_path, classes):
        inputs = rows(300, missing=0)
        forest = RandomForestClassifier(12, random_state=0, n_jobs=1).fit(inputs, np.arange(300) % classes)
        files = model_folder(tmp_path, treelite.sklearn.import_model(forest).serialize_bytes(), "checkpoint.tl")
        expected = forest.predict_proba(inputs)
        got = answer(load(files, config(PROBABILITIES, output=(classes,))), inputs)
        np.testing.assert_allclose(got, expected, atol=1e-5)
        np.testing.assert_array_equal(answer(load(files, config(CLASSES)), inputs)[:, 0], expected.argmax(axis=1))

    def test_isolation_forest(self, tmp_path):
        inputs = rows(300, missing=0)
        forest = IsolationForest(n_estimators=10, random_state=0, n_jobs=1).fit(inputs)
        model = treelite.sklearn.import_model(forest)
        files = model_folder(tmp_path, model.serialize_bytes(), "checkpoint.tl")
        np.testing.assert_allclose(
            answer(load(files, config(REGRESSOR)), inputs)[:, 0], -forest.score_samples(inputs), atol=1e-5
        )

    def test_cut_short(self, tmp_path, data):
        for length in (30, 100, 700, len(data) - 1):
            with pytest.raises(ConfigError, match=r"checkpoint\.tl: the file is (cut short|damaged)"):
                load(model_folder(tmp_path, data[:length], "checkpoint.tl"), config(CLASSES))

    def test_damaged_anywhere_is_an_error_or_a_model(self, tmp_path, data):
        """Treelite itself crashes or hangs on about one in forty of these."""
        random = np.random.default_rng(0)
        for _ in range(300):
            broken = bytearray(data)
            for place in random.integers(0, len(data) // 4, 3):
                broken[place] = random.integers(256)
            files = model_folder(tmp_path, bytes(broken), "checkpoint.tl")
            with contextlib.suppress(ConfigError):
                load(files, config(CLASSES | {"model_type": "treelite_checkpoint"}))

    def test_of_another_major_version(self, tmp_path, data):
        files = model_folder(tmp_path, (3).to_bytes(4, "little") + data[4:], "checkpoint.tl")
        with pytest.raises(ConfigError, match=r"written by treelite 3\.\d+\.\d+"):
            load(files, config(CLASSES))
