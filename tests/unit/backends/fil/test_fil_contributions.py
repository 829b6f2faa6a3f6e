"""``treeshap_output`` equals what the training library calls contributions."""

from __future__ import annotations

import numpy as np
import pytest
import xgboost
from fil_models import CLASSES, REGRESSOR, booster, config, document, lightgbm_booster, load, model_folder, rows

from bident.backends.fil import explain

KINDS = {
    "binary:logistic": ("binary", {}, 1),
    "reg:squarederror": ("real", {"booster": "dart", "rate_drop": 0.5}, 1),
    "count:poisson": ("positive", {"max_depth": 9}, 1),
    "multi:softprob": ("classes", {"num_parallel_tree": 3, "subsample": 0.6}, 3),
}


@pytest.mark.parametrize(("objective", "how"), KINDS.items())
def test_xgboost(tmp_path, objective, how):
    kind, settings, classes = how
    model = booster(objective, kind, **settings)
    parameters = CLASSES if kind in ("binary", "classes") else REGRESSOR
    instance = load(model_folder(tmp_path, document(model)), config(parameters, contributions=classes * 7))
    for count in (0, 1, 100):
        inputs = rows(count)
        got = instance.execute({"input__0": inputs})["treeshap_output"]
        assert (got.shape, got.dtype) == ((count, classes * 7), np.float32)
        if count:
            expected = model.predict(xgboost.DMatrix(inputs), pred_contribs=True)
            np.testing.assert_allclose(got, expected.reshape(count, -1), atol=1e-5)


@pytest.mark.parametrize("settings", [{}, {"zero_as_missing": True}, {"use_missing": False}], ids=str)
def test_lightgbm(tmp_path, settings):
    model = lightgbm_booster("regression", "real", **settings)
    files = model_folder(tmp_path, model.model_to_string(), "model.txt")
    inputs = rows(80)
    got = load(files, config(REGRESSOR, contributions=7)).execute({"input__0": inputs})["treeshap_output"]
    np.testing.assert_allclose(got, model.predict(inputs.astype(np.float64), pred_contrib=True), atol=1e-5)


def test_computed_in_small_steps(tmp_path, monkeypatch):
    model = booster(max_depth=6)
    instance = load(model_folder(tmp_path, document(model)), config(CLASSES, contributions=7))
    inputs = rows(50)
    at_once = instance.execute({"input__0": inputs})["treeshap_output"]
    monkeypatch.setattr(explain, "_CHUNK_ELEMENTS", 500)
    np.testing.assert_allclose(instance.execute({"input__0": inputs})["treeshap_output"], at_once, atol=1e-6)


def test_they_add_up_to_the_margin(tmp_path):
    model = booster()
    instance = load(model_folder(tmp_path, document(model)), config(CLASSES, contributions=7))
    inputs = rows(64)
    got = instance.execute({"input__0": inputs})["treeshap_output"]
    margins = model.inplace_predict(inputs, predict_type="margin")
    np.testing.assert_allclose(got.sum(axis=1), margins, atol=1e-5)
