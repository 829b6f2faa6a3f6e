"""The sample models, built by the command and asked by NVIDIA's client: their answers are the runtimes' own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import tritonclient.http as triton
import xgboost
from numpy.typing import NDArray
from serving import TensorServer

from bident.zoo import RECIPES

NAMES = sorted(name for name, recipe in RECIPES.items() if recipe.in_all)


@pytest.fixture(scope="module")
def client(
    samples: Path, tmp_path_factory: pytest.TempPathFactory, plugins: Path
) -> Iterator[triton.InferenceServerClient]:
    log = tmp_path_factory.mktemp("log") / "server.log"
    with (
        TensorServer(samples, log, plugins=plugins) as server,
        triton.InferenceServerClient(f"127.0.0.1:{server.port}", concurrency=4, network_timeout=60) as made,
    ):
        yield made


def asked(
    client: triton.InferenceServerClient,
    model: str,
    rows: NDArray[np.float32],
    *,
    binary: bool = True,
    classes: int = 0,
) -> list[NDArray[np.float32]]:
    """The outputs in the config's order."""
    metadata = client.get_model_metadata(model)
    tensor = triton.InferInput(metadata["inputs"][0]["name"], list(rows.shape), "FP32")
    tensor.set_data_from_numpy(rows, binary_data=binary)
    names = [output["name"] for output in metadata["outputs"]]
    wanted = [triton.InferRequestedOutput(name, binary_data=binary, class_count=classes) for name in names]
    result = client.infer(model, [tensor], outputs=wanted)
    return [result.as_numpy(name) for name in names]


def test_every_sample_is_ready(client: triton.InferenceServerClient) -> None:
    assert client.is_server_ready()
    assert [row["name"] for row in client.get_model_repository_index()] == sorted(NAMES)
    assert all(client.is_model_ready(name) for name in NAMES)


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_fraud_is_what_xgboost_says_above_the_threshold(
    client: triton.InferenceServerClient, samples: Path, binary: bool
) -> None:
    booster = xgboost.Booster(model_file=samples / "fraud_xgb" / "1" / "xgboost.json")
    rows = np.random.default_rng(3).normal(scale=2, size=(64, 32)).astype(np.float32)
    rows[0] = 0
    rows[1, ::3] = np.nan if binary else 0
    (answer,) = asked(client, "fraud_xgb", rows, binary=binary)
    expected = (booster.predict(xgboost.DMatrix(rows)) > 0.5).astype(np.float32)
    assert answer.shape == (64, 1)
    assert 0 < expected.sum() < 64
    np.testing.assert_array_equal(answer[:, 0], expected)


@pytest.mark.parametrize("model", ["iris_sklearn", "iris_zipmap"])
def test_iris_is_a_setosa(client: triton.InferenceServerClient, model: str) -> None:
    label, probabilities = asked(client, model, np.float32([[5.1, 3.5, 1.4, 0.2]]))
    assert (label.shape, label.dtype, label.item()) == ((1, 1), np.int64, 0)
    np.testing.assert_allclose(probabilities, [[0.9999, 0, 0]], atol=2e-4)


def test_iris_with_and_without_zipmap_agree(client: triton.InferenceServerClient) -> None:
    rows = np.random.default_rng(5).uniform(0, 8, size=(100, 4)).astype(np.float32)
    for plain, zipped in zip(asked(client, "iris_sklearn", rows), asked(client, "iris_zipmap", rows), strict=True):
        np.testing.assert_array_equal(plain, zipped)


@pytest.mark.parametrize(("model", "side", "batch"), [("resnet18", 224, 2), ("yolov8n", 640, 1)])
def test_networks_answer_what_onnx_runtime_answers(
    client: triton.InferenceServerClient, samples: Path, model: str, side: int, batch: int
) -> None:
    rows = np.random.default_rng(1).random((batch, 3, side, side), np.float32)
    (answer,) = asked(client, model, rows)
    session = onnxruntime.InferenceSession(samples / model / "1" / "model.onnx", providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {session.get_inputs()[0].name: rows})
    assert answer.shape == expected.shape == ((batch, 1000) if model == "resnet18" else (batch, 84, 8400))
    np.testing.assert_allclose(answer, expected, rtol=1e-3, atol=1e-3)


def test_the_cat_is_a_cat_by_name(client: triton.InferenceServerClient, samples: Path) -> None:
    recipe = RECIPES["imagenet_lite0"]
    facts = recipe.built(samples)
    assert facts is not None
    (question,) = recipe.questions(facts)
    (best,) = asked(client, "imagenet_lite0", question.inputs()["input"], classes=3)
    score, index, label = best[0, 0].decode().split(":")
    assert float(score) > 0
    assert 281 <= int(index) <= 285
    assert label == (samples / "imagenet_lite0" / "labels.txt").read_text(encoding="utf-8").splitlines()[int(index)]
    assert "cat" in label.lower()
