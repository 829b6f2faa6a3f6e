"""Which file is taken and what it is; and what is said about a file that is no tree model."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from fil_models import (
    CLASSES,
    PROBABILITIES,
    REGRESSOR,
    answer,
    bare_config,
    booster,
    categorical_booster,
    config,
    document,
    lightgbm_booster,
    load,
    model_folder,
    rows,
    trees,
)

from bident.backends.base import ModelFiles
from bident.backends.fil import FilBackend
from bident.backends.fil.formats import ModelType, detect
from bident.errors import Code, ConfigError


class TestChoice:
    @pytest.mark.parametrize("declared", [None, "xgboost_ubj"])
    def test_ubjson_by_its_usual_name(self, tmp_path, declared):
        files = model_folder(tmp_path, bytes(booster().save_raw("ubj")), "xgboost.ubj")
        parameters = CLASSES | ({"model_type": declared} if declared else {})
        assert answer(load(files, config(parameters)), rows(3)).shape == (3, 1)

    def test_ubjson_bytes_in_a_json_file_are_read_with_a_warning(self, tmp_path, caplog):
        files = model_folder(tmp_path, bytes(booster().save_raw("ubj")), "xgboost.json")
        load(files, config(CLASSES))
        assert "xgboost.json holds XGBoost UBJSON, not XGBoost JSON" in caplog.text

    @pytest.mark.parametrize(
        ("raw", "declared", "cure"),
        [
            ("ubj", "xgboost_json", "is XGBoost UBJSON, not XGBoost JSON: set parameter model_type to 'xgboost_ubj'"),
            ("json", "xgboost_ubj", "is XGBoost JSON, not XGBoost UBJSON: set parameter model_type to 'xgboost_json'"),
            ("json", "lightgbm", "set parameter model_type to 'xgboost_json'"),
            ("json", "xgboost", "set parameter model_type to 'xgboost_json'"),
        ],
    )
    def test_a_declared_type_that_is_not_the_files(self, tmp_path, raw, declared, cure):
        files = model_folder(tmp_path, bytes(booster().save_raw(raw)), ModelType(declared).file_name)
        with pytest.raises(ConfigError) as refused:
            load(files, config(CLASSES | {"model_type": declared}))
        assert cure in str(refused.value)

    def test_legacy_by_elimination_says_what_it_is_not(self, tmp_path):
        files = model_folder(tmp_path, b"\x01\x02 nothing known", "xgboost.json")
        with pytest.raises(ConfigError, match=r"is not XGBoost JSON, which parameter model_type \('xgboost_json'\)"):
            load(files, config(CLASSES | {"model_type": "xgboost_json"}))

    def test_the_only_file_there_is(self, tmp_path, caplog):
        files = model_folder(tmp_path, document(booster()), "fraud-v3.json")
        load(files, config(CLASSES))
        assert "fraud-v3.json is taken" in caplog.text

    def test_default_model_filename(self, tmp_path):
        model_folder(tmp_path, "tree\n", "model.txt")
        files = model_folder(tmp_path, document(booster()), "mine.json")
        wanted = config(CLASSES).to_proto()
        wanted.default_model_filename = "mine.json"
        load(files, type(bare_config()).from_proto(wanted))

    def test_no_file(self, tmp_path):
        (tmp_path / "1").mkdir()
        with pytest.raises(ConfigError, match=r"no model file.*'xgboost.json' or .*'checkpoint.tl'.*holds nothing"):
            load(ModelFiles(tmp_path, 1), config(CLASSES))

    def test_a_folder_instead_of_a_file(self, tmp_path):
        (tmp_path / "1" / "xgboost.json").mkdir(parents=True)
        with pytest.raises(ConfigError, match="cannot open"):
            load(ModelFiles(tmp_path, 1), config(CLASSES))

    @pytest.mark.parametrize("value", ["xgboost-json", "pickle"])
    def test_unknown_model_type(self, tmp_path, value):
        files = model_folder(tmp_path, document(booster()))
        with pytest.raises(ConfigError, match="not recognized as a valid serialization format") as refused:
            load(files, config(CLASSES | {"model_type": value}))
        assert ("did you mean 'xgboost_json'?" in str(refused.value)) == (value == "xgboost-json")
        assert "allowed: xgboost_json, xgboost_ubj, xgboost, lightgbm, treelite_checkpoint" in str(refused.value)


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was loaded",))


BAD = {
    "empty": (b"", "is empty"),
    "blank": (b"  \n", "is empty"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "Git LFS pointer.*git lfs pull"),
    "pickle 2": (pickle.dumps(Bomb(), 2), "Python pickle, which is never loaded"),
    "pickle 5": (pickle.dumps(Bomb(), 5), "Python pickle, which is never loaded"),
    "pickle 0": (pickle.dumps(Bomb(), 0), "Python pickle, which is never loaded"),
    "zip": (b"PK\x03\x04rest", "zip archive"),
    "gzip": (b"\x1f\x8b\x08rest", "compressed with gzip"),
    "page": (b"<!DOCTYPE html><html>", "HTML page"),
    "snapshot": (b"CONFIG-offset:\x00", "memory snapshot"),
    "other json": (b'{"a": 1}', "holds no XGBoost model"),
    "noise": (bytes(range(1, 200)), "cut short|none of the formats"),
    "half a line": (b'{"learner', "is not JSON"),
    "deep": (b'{"a":' + b"[" * 100_000, "is not JSON"),
    "deep ubjson": (b"{L" + b"\0" * 7 + b"\1a" + b"[" * 100_000, "too deeply nested"),
    "ubjson bomb": (b"{L" + b"\0" * 7 + b"\1a[$d#L" + b"\x7f" + b"\xff" * 7, "does not fit the file"),
}


@pytest.mark.parametrize(("data", "why"), BAD.values(), ids=BAD)
def test_what_is_no_tree_model(tmp_path, data, why):
    with pytest.raises(
        ConfigError, match=rf"(?s)xgboost\.json: the file .*({why}).*Supported: XGBoost 0\.9 to 3\.x"
    ) as refused:
        load(model_folder(tmp_path, data), config(CLASSES))
    assert refused.value.code is Code.INVALID_ARG


@pytest.mark.parametrize("raw", ["json", "ubj"])
def test_cut_short_anywhere(tmp_path, raw):
    data = bytes(booster(rounds=1).save_raw(raw))
    for length in range(2, len(data) - 1, 97):
        files = model_folder(tmp_path, data[:length], f"xgboost.{raw}")
        with pytest.raises(ConfigError, match="cannot read"):
            load(files, config(CLASSES))


def test_the_error_names_the_files_own_version(tmp_path):
    content = document(booster())
    content["version"] = [3, 9, 1]
    del content["learner"]["objective"]
    with pytest.raises(ConfigError, match=r"no 'objective'.*written by XGBoost 3\.9\.1"):
        load(model_folder(tmp_path, content), config(CLASSES))


def change(path: tuple[str, ...], value: object):
    def apply(content):
        place = content["learner"]
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return apply


PARAMETERS, MODEL = ("learner_model_param",), ("gradient_booster", "model")
DAMAGES = {
    "objective": change(("objective", "name"), "reg:new"),
    "classes": change((*PARAMETERS, "num_class"), "1000000000"),
    "base score": change((*PARAMETERS, "base_score"), "abc"),
    "base scores": change((*PARAMETERS, "base_score"), "[1E0,2E0]"),
    "feature count": change((*PARAMETERS, "num_feature"), "x"),
    "tree info": change((*MODEL, "tree_info"), [0]),
    "no trees": change((*MODEL, "trees"), 5),
    "model": change(("gradient_booster",), []),
    "booster": change(("gradient_booster", "name"), "gbwood"),
    "parameters": change(PARAMETERS, None),
}
TREE_DAMAGES = {
    "child outside": ("left_children", 0, 9999),
    "child negative": ("right_children", 0, -7),
    "cycle": ("left_children", 1, 0),
    "two parents": ("left_children", 1, 2),
    "feature outside": ("split_indices", 0, 10**6),
    "half a node": ("right_children", 0, -1),
}


class TestDamaged:
    """Nothing that a file says can crash, hang or fill the process."""

    @pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
    def test_fields(self, tmp_path, damage):
        content = document(booster())
        damage(content)
        with pytest.raises(ConfigError, match=r"cannot read .*xgboost\.json"):
            load(model_folder(tmp_path, content), config(CLASSES))

    @pytest.mark.parametrize(("field", "node", "value"), TREE_DAMAGES.values(), ids=TREE_DAMAGES)
    def test_trees(self, tmp_path, field, node, value):
        content = document(booster())
        trees(content)[0][field][node] = value
        with pytest.raises(ConfigError, match=r"cannot read .*xgboost\.json"):
            load(model_folder(tmp_path, content), config(CLASSES))

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("categories_segments", 10**6),
            ("categories_sizes", 10**6),
            ("categories_sizes", -1),
            ("categories_nodes", 10**6),
            ("categories", -5),
        ],
    )
    def test_categories(self, tmp_path, field, value):
        content = document(categorical_booster())
        tree = next(tree for tree in trees(content) if tree["categories"])
        tree[field][0] = value
        with pytest.raises(ConfigError, match="refers to categories that do not exist"):
            load(model_folder(tmp_path, content), config(REGRESSOR))

    @pytest.mark.parametrize("value", [-1, 99999])
    def test_leaf_vectors(self, tmp_path, value):
        content = document(booster("multi:softprob", "classes", multi_strategy="multi_output_tree"))
        (tree, *_) = trees(content)
        tree["right_children"][tree["left_children"].index(-1)] = value
        with pytest.raises(ConfigError, match="refers to leaf values that do not exist"):
            load(model_folder(tmp_path, content), config(CLASSES))

    @pytest.mark.parametrize("value", [-520093696, 1])
    def test_votes(self, tmp_path, value):
        content = document(booster())
        content["learner"]["gradient_booster"]["model"]["tree_info"][0] = value
        with pytest.raises(ConfigError, match="names a class that does not exist"):
            load(model_folder(tmp_path, content), config(CLASSES))

    def test_arrays_of_other_lengths(self, tmp_path):
        content = document(booster())
        trees(content)[0]["split_indices"].pop()
        with pytest.raises(ConfigError, match="refused by treelite"):
            load(model_folder(tmp_path, content), config(CLASSES))

    def test_wrong_parents_do_no_harm(self, tmp_path):
        """XGBoost's own reader crashes on these; nothing of theirs is needed."""
        content = document(booster())
        for tree in trees(content):
            tree["parents"] = [0] * len(tree["parents"])
        inputs = rows(64)
        got = answer(load(model_folder(tmp_path, content), config(PROBABILITIES)), inputs)
        np.testing.assert_allclose(got[:, 0], booster().inplace_predict(inputs), atol=1e-5)


def test_detection():
    assert detect(json.dumps(document(booster())).encode()) is ModelType.XGBOOST_JSON
    assert detect(b'\xef\xbb\xbf {\n "learner": {}}') is ModelType.XGBOOST_JSON
    assert detect(bytes(booster().save_raw("ubj"))) is ModelType.XGBOOST_UBJ
    assert detect(lightgbm_booster().model_to_string().encode()) is ModelType.LIGHTGBM
    assert detect(lightgbm_booster().model_to_string().replace("\n", "\r\n").encode()) is ModelType.LIGHTGBM


def test_nothing_is_written_to_standard_error(tmp_path, capfd):
    content = document(booster())
    content["learner"]["learner_model_param"]["num_feature"] = "2"
    with pytest.raises(ConfigError):
        load(model_folder(tmp_path, content), config(CLASSES))
    FilBackend().complete(model_folder(tmp_path, document(booster())), bare_config())
    assert capfd.readouterr() == ("", "")
