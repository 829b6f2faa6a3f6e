"""XGBoost models give XGBoost's own predictions, in every format and from every version's schema."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import treelite
import xgboost
from fil_models import (
    CLASSES,
    PROBABILITIES,
    REGRESSOR,
    answer,
    booster,
    categorical_booster,
    categorical_rows,
    config,
    document,
    legacy,
    load,
    model_folder,
    rows,
    trees,
)

from bident.errors import ConfigError

SINGLE = {
    "reg:squarederror": "real",
    "reg:squaredlogerror": "positive",
    "reg:logistic": "binary",
    "reg:pseudohubererror": "real",
    "reg:absoluteerror": "real",
    "reg:gamma": "positive",
    "reg:tweedie": "positive",
    "count:poisson": "positive",
    "binary:logistic": "binary",
    "binary:logitraw": "binary",
    "binary:hinge": "binary",
    "rank:pairwise": "classes",
    "rank:ndcg": "binary",
    "survival:cox": "positive",
    "survival:aft": "positive",
}


def ranked(objective: str, kind: str) -> Any:
    return booster(objective, "binary" if objective.startswith("rank:") else kind)


@pytest.mark.parametrize(("objective", "kind"), SINGLE.items())
def test_every_objective_with_one_output(tmp_path, objective, kind):
    model = ranked(objective, kind)
    instance = load(model_folder(tmp_path, model.save_raw("json")), config(REGRESSOR))
    for count in (1, 2, 17, 1000):
        inputs = rows(count)
        np.testing.assert_allclose(answer(instance, inputs)[:, 0], model.inplace_predict(inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("file_type", ["json", "ubj"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"base_score": 0.3},
        {"num_parallel_tree": 4, "subsample": 0.7, "rounds": 2},
        {"booster": "dart", "rate_drop": 0.5},
        {"multi_strategy": "multi_output_tree"},
    ],
    ids=str,
)
def test_multiclass(tmp_path, settings, file_type):
    model = booster("multi:softprob", "classes", **settings)
    files = model_folder(tmp_path, bytes(model.save_raw(file_type)), f"xgboost.{file_type}")
    inputs = rows(1000)
    expected = model.inplace_predict(inputs)
    probabilities = load(files, config(PROBABILITIES, output=(3,)))
    np.testing.assert_allclose(answer(probabilities, inputs), expected, atol=1e-5)
    classes = load(files, config(CLASSES))
    np.testing.assert_array_equal(answer(classes, inputs)[:, 0], expected.argmax(axis=1))


@pytest.mark.parametrize("file_type", ["json", "ubj"])
@pytest.mark.parametrize(
    "settings",
    [{"num_parallel_tree": 8, "subsample": 0.7, "rounds": 1}, {"booster": "dart", "rate_drop": 0.5, "rounds": 12}],
    ids=str,
)
def test_random_forest_and_dart(tmp_path, settings, file_type):
    model = booster("reg:squarederror", "real", **settings)
    files = model_folder(tmp_path, bytes(model.save_raw(file_type)), f"xgboost.{file_type}")
    inputs = rows(500)
    got = answer(load(files, config(REGRESSOR)), inputs)
    np.testing.assert_allclose(got[:, 0], model.inplace_predict(inputs), atol=1e-5)


@pytest.mark.parametrize("onehot", [1, 100])
def test_categorical_features(tmp_path, onehot):
    inputs, model = categorical_rows(), categorical_booster(onehot)
    for name, data in named_categories(model).items():
        instance = load(model_folder(tmp_path / name, data), config(REGRESSOR))
        np.testing.assert_allclose(answer(instance, inputs)[:, 0], model.inplace_predict(inputs), atol=1e-5)


def named_categories(model: Any) -> dict[str, Any]:
    """The model as it is, and as XGBoost 3.1 writes it when the categories had names."""
    named = document(model)
    named["learner"]["gradient_booster"]["model"]["cats"] = {
        "enc": [{"offsets": [0, 1, 2], "values": [97, 98]}, {"type": 15, "values": [5, 6]}],
        "feature_segments": [0, 2, 4],
        "sorted_idx": [0, 1, 0, 1],
    }
    return {"codes": document(model), "names": named}


def test_named_categories_are_announced(tmp_path, caplog):
    load(model_folder(tmp_path, named_categories(booster())["names"]), config(CLASSES))
    assert "send their codes" in caplog.text


class TestOldSchemas:
    """Files as earlier versions wrote them, made from today's by taking fields away."""

    @staticmethod
    def check(tmp_path, content: dict[str, Any]) -> None:
        inputs = rows(300)
        instance = load(model_folder(tmp_path, content), config(PROBABILITIES))
        np.testing.assert_allclose(answer(instance, inputs)[:, 0], booster().inplace_predict(inputs), atol=1e-5)

    def test_1_7_scalar_base_score_and_no_cats(self, tmp_path):
        content = document(booster())
        parameters = content["learner"]["learner_model_param"]
        parameters["base_score"] = parameters["base_score"].strip("[]")
        del content["learner"]["gradient_booster"]["model"]["cats"]
        del content["learner"]["gradient_booster"]["model"]["iteration_indptr"]
        content["version"] = [1, 7, 6]
        self.check(tmp_path, content)

    def test_1_2_no_categories_no_targets_and_booleans(self, tmp_path):
        content = document(booster())
        for tree in trees(content):
            for key in [key for key in tree if key.startswith("categories")] + ["split_type"]:
                del tree[key]
            tree["default_left"] = [bool(value) for value in tree["default_left"]]
        parameters = content["learner"]["learner_model_param"]
        for key in ("num_target", "boost_from_average"):
            del parameters[key]
        parameters["base_score"] = parameters["base_score"].strip("[]")
        del content["learner"]["feature_names"], content["learner"]["feature_types"]
        del content["learner"]["gradient_booster"]["model"]["cats"]
        content["version"] = [1, 2, 0]
        self.check(tmp_path, content)

    def test_2_1_leaf_vectors_among_the_weights_of_all_nodes(self, tmp_path):
        model = booster("multi:softprob", "classes", multi_strategy="multi_output_tree")
        content = document(model)
        for tree in trees(content):
            weights = np.array(tree["base_weights"]).reshape(-1, 3)
            leaf = np.array(tree["left_children"]) < 0
            weights[leaf] = np.array(tree.pop("leaf_weights")).reshape(-1, 3)
            tree["base_weights"] = weights.reshape(-1).tolist()
            tree["right_children"] = np.where(leaf, -1, tree["right_children"]).tolist()
            tree["split_conditions"] = np.where(leaf, np.nan, tree["split_conditions"]).tolist()
            del tree["loss_changes"], tree["sum_hessian"]
        inputs = rows(200)
        files = model_folder(tmp_path, content)
        got = answer(load(files, config(PROBABILITIES, output=(3,))), inputs)
        np.testing.assert_allclose(got, model.inplace_predict(inputs), atol=1e-5)
        with pytest.raises(ConfigError, match="Model does not have node statistics"):
            load(files, config(PROBABILITIES, output=(3,), contributions=21))

    def test_1_7_nodes_that_pruning_left_behind(self, tmp_path):
        content = document(booster())
        for tree in trees(content):
            count = len(tree["left_children"])
            for field in [field for field in tree if isinstance(tree[field], list) and len(tree[field]) == count]:
                tree[field] += [-1, -1] if field.endswith("children") else [type(tree[field][0])(0)] * 2
            tree["tree_param"] |= {"num_nodes": str(count + 2), "num_deleted": "2"}
        self.check(tmp_path, content)

    def test_memory_snapshot_with_a_model_in_it(self, tmp_path):
        self.check(tmp_path, {"Config": {"learner": {}}, "Model": document(booster())})


class TestNewSchemas:
    """Files of XGBoost 3.x and of versions that do not exist yet."""

    def test_vector_base_score(self, tmp_path):
        content = document(booster())
        assert content["version"][0] >= 3
        assert content["learner"]["learner_model_param"]["base_score"].startswith("[")
        assert "cats" in content["learner"]["gradient_booster"]["model"]
        TestOldSchemas.check(tmp_path, content)

    def test_vector_base_score_of_whole_numbers(self, tmp_path):
        content = document(booster("multi:softprob", "classes", base_score=1))
        content["learner"]["learner_model_param"]["base_score"] = "[1,1,1]"
        instance = load(model_folder(tmp_path, content), config(PROBABILITIES, output=(3,)))
        inputs = rows(50)
        expected = booster("multi:softprob", "classes", base_score=1).inplace_predict(inputs)
        np.testing.assert_allclose(answer(instance, inputs), expected, atol=1e-5)

    def unknown(self) -> dict[str, Any]:
        content = document(booster())
        content["checksum"] = "abc"
        content["learner"]["tags"] = {"a": [1, {"b": None}]}
        content["learner"]["learner_model_param"]["num_widget"] = "3"
        content["learner"]["gradient_booster"]["model"]["quantum"] = [[1]]
        for tree in trees(content):
            tree["entropy"] = [0.0]
        content["version"] = [4, 0, 0]
        return content

    def test_unknown_fields_are_ignored_with_one_warning(self, tmp_path, caplog):
        TestOldSchemas.check(tmp_path, self.unknown())
        (warning,) = [record.message for record in caplog.records if "ignored" in record.message]
        for name in ("checksum", "tags", "num_widget", "quantum", "entropy"):
            assert f"'{name}'" in warning
        assert "newer major version" in caplog.text

    def test_unknown_fields_are_allowed_silently(self, tmp_path, caplog):
        allowed = PROBABILITIES | {"model_type": "xgboost_json", "xgboost_allow_unknown_field": "true"}
        load(model_folder(tmp_path, self.unknown()), config(allowed))
        assert caplog.text == ""


class TestLegacyBinary:
    """The format of ``save_model`` before JSON."""

    @pytest.mark.parametrize("prefix", [b"", b"binf"])
    def test_predictions(self, tmp_path, prefix):
        files = model_folder(tmp_path, prefix + legacy(document(booster())), "xgboost.model")
        inputs = rows(300)
        got = answer(load(files, config(PROBABILITIES | {"model_type": "xgboost"})), inputs)
        np.testing.assert_allclose(got[:, 0], booster().inplace_predict(inputs), atol=1e-5)

    @pytest.mark.parametrize("objective", ["binary:logistic", "count:poisson", "reg:squarederror"])
    @pytest.mark.parametrize("major", [0, 1])
    def test_agrees_with_treelites_own_reader(self, tmp_path, objective, major):
        model = booster(objective, SINGLE[objective])
        files = model_folder(tmp_path, legacy(document(model), major, 0.4), "xgboost.model")
        theirs = treelite.frontend.load_xgboost_model_legacy_binary(files.version_directory / "xgboost.model")
        inputs = rows(100)
        got = answer(load(files, config(REGRESSOR)), inputs)
        np.testing.assert_allclose(got, treelite.gtil.predict(theirs, inputs, nthread=1)[:, 0], rtol=1e-6)

    def test_multiclass(self, tmp_path):
        model = booster("multi:softprob", "classes", base_score=0.5)
        files = model_folder(tmp_path, legacy(document(model), base_score=0.5), "xgboost.model")
        inputs = rows(100)
        got = answer(load(files, config(PROBABILITIES, output=(3,))), inputs)
        np.testing.assert_allclose(got, model.inplace_predict(inputs), atol=1e-5)

    def test_cut_short_anywhere(self, tmp_path):
        data = legacy(document(booster(rounds=1)))
        for length in (40, 140, 170, 330, 500, len(data) - 1):
            files = model_folder(tmp_path, data[:length], "xgboost.model")
            with pytest.raises(ConfigError, match=r"xgboost\.model: the file .*Supported: XGBoost"):
                load(files, config(CLASSES))


def test_not_a_number_and_infinity_in_the_file(tmp_path):
    """XGBoost writes NaN and Infinity, which JSON does not have."""
    content = document(booster())
    trees(content)[0]["loss_changes"][0] = float("nan")
    trees(content)[1]["loss_changes"][0] = float("inf")
    TestOldSchemas.check(tmp_path, content)


def test_several_targets_are_refused(tmp_path):
    inputs = rows(100)
    data = xgboost.DMatrix(inputs, label=np.nan_to_num(inputs[:, :2]))
    for strategy in ("one_output_per_tree", "multi_output_tree"):
        model = xgboost.train({"multi_strategy": strategy, "nthread": 1}, data, 2)
        with pytest.raises(ConfigError, match="predicts 2 targets: treelite multi-target not supported"):
            load(model_folder(tmp_path, model.save_raw("json")), config(REGRESSOR))


def test_linear_booster_is_refused(tmp_path):
    model = booster("reg:squarederror", "real", booster="gblinear", max_depth=0)
    with pytest.raises(ConfigError, match=r"gblinear.*no trees"):
        load(model_folder(tmp_path, model.save_raw("json")), config(REGRESSOR))
