"""Both engines on one repository of sample models: every question has the same answer, and is counted alike."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from numpy.typing import NDArray
from tritonclient.utils import np_to_triton_dtype

from benchmarks.servers import Bident
from bident.zoo import RECIPES
from real_triton import ServedByTriton, make_triton

pytestmark = pytest.mark.timeout(300)  # both engines load every sample

NAMES = sorted(name for name, recipe in RECIPES.items() if recipe.in_all)
TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}
"""Of floats: the same libraries compute them, but the two numpys need not round alike."""

Arrays = dict[str, NDArray[Any]]


@dataclass
class Engines:
    """A client of each, and the repository of both."""

    samples: Path
    triton: tritonclient.http.InferenceServerClient
    bident: tritonclient.http.InferenceServerClient
    triton_grpc: tritonclient.grpc.InferenceServerClient


@pytest.fixture(scope="module")
def engines(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    make_triton()
    base = tmp_path_factory.mktemp("engines")
    with ExitStack() as stack:
        servers = [ServedByTriton(samples, base / "triton.log"), Bident(samples, base / "bident.log")]
        for server in servers:  # side by side: both take their time
            stack.push(server)
            server.start()
        for server in servers:
            server.wait_ready()
        clients = [
            stack.enter_context(tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.port}", concurrency=8))
            for server in servers
        ]
        grpc = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{servers[0].grpc_port}")
        yield Engines(samples, *clients, stack.enter_context(grpc))


def ask(client: tritonclient.http.InferenceServerClient, model: str, arrays: Arrays) -> Arrays:
    tensors = []
    for name, array in arrays.items():
        tensor = tritonclient.http.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        tensors.append(tensor.set_data_from_numpy(array))
    result = client.infer(model, tensors)
    return {output["name"]: result.as_numpy(output["name"]) for output in result.get_response()["outputs"]}


def assert_equal(one: Arrays, other: Arrays) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert (one[name].shape, one[name].dtype) == (other[name].shape, other[name].dtype), name
        if one[name].dtype.kind == "f":
            np.testing.assert_allclose(one[name], other[name], **TOLERANCE, err_msg=name)
        else:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def test_it_is_the_real_one_with_every_sample(engines: Engines) -> None:
    assert engines.triton.get_server_metadata()["version"] == "2.51.0"
    assert [row["name"] for row in engines.triton.get_model_repository_index()] == NAMES
    assert all(engines.triton.is_model_ready(name) for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_questions_of_the_zoo_have_the_same_answers(engines: Engines, name: str) -> None:
    facts = RECIPES[name].built(engines.samples)
    assert facts is not None
    for question in RECIPES[name].questions(facts):
        inputs = dict(question.inputs())
        answer = ask(engines.triton, name, inputs)
        question.check(answer)
        assert_equal(answer, ask(engines.bident, name, inputs))


@pytest.mark.parametrize("name", NAMES)
def test_clients_see_the_same_model(engines: Engines, name: str) -> None:
    one, other = (client.get_model_metadata(name) for client in (engines.triton, engines.bident))
    assert (one["inputs"], one["outputs"], one["versions"]) == (other["inputs"], other["outputs"], other["versions"])


def test_random_rows_have_the_same_answers(engines: Engines) -> None:
    random = np.random.default_rng(7)
    rows = random.normal(scale=2, size=(500, 32)).astype(np.float32)
    rows[::7, ::3] = np.nan
    flowers = random.uniform(0, 8, size=(100, 4)).astype(np.float32)
    for name, tensor, sent in (("fraud_xgb", "input__0", rows), ("iris_zipmap", "X", flowers)):
        assert_equal(*(ask(client, name, {tensor: sent}) for client in (engines.triton, engines.bident)))


def test_requests_that_run_together_each_get_their_own_answer(engines: Engines) -> None:
    """Triton merges what waits; the rows must come apart again as they went in."""
    flowers = np.random.default_rng(2).uniform(0, 8, size=(96, 4)).astype(np.float32)
    expected = ask(engines.bident, "iris_sklearn", {"X": flowers})["probabilities"]
    before = engines.triton.get_inference_statistics("iris_sklearn")["model_stats"][0]

    def three(begin: int) -> NDArray[Any]:
        tensor = tritonclient.grpc.InferInput("X", [3, 4], "FP32")
        tensor.set_data_from_numpy(flowers[begin : begin + 3])
        probabilities: NDArray[Any] = engines.triton_grpc.infer("iris_sklearn", [tensor]).as_numpy("probabilities")
        return probabilities

    with ThreadPoolExecutor(8) as pool:
        answers = np.concatenate(list(pool.map(three, range(0, 96, 3))))
    np.testing.assert_allclose(answers, expected, **TOLERANCE)
    after = engines.triton.get_inference_statistics("iris_sklearn")["model_stats"][0]
    assert after["inference_count"] - before["inference_count"] == 96
    assert after["execution_count"] - before["execution_count"] < 32


def test_requests_are_counted_alike(engines: Engines) -> None:
    def counts(client: tritonclient.http.InferenceServerClient) -> tuple[int, int, int]:
        (row,) = client.get_inference_statistics("fraud_xgb")["model_stats"]
        inference = row["inference_stats"]
        return row["inference_count"], inference["success"]["count"], inference["fail"]["count"]

    rows = {"input__0": np.zeros((3, 32), np.float32)}
    before = [counts(client) for client in (engines.triton, engines.bident)]
    for client in (engines.triton, engines.bident):
        ask(client, "fraud_xgb", rows)
        ask(client, "fraud_xgb", rows)
    after = [counts(client) for client in (engines.triton, engines.bident)]
    grown = [tuple(np.subtract(*pair)) for pair in zip(after, before, strict=True)]
    assert grown == [(6, 2, 0), (6, 2, 0)]


def test_a_model_is_asked_over_grpc_too(engines: Engines) -> None:
    tensor = tritonclient.grpc.InferInput("X", [1, 4], "FP32")
    tensor.set_data_from_numpy(np.float32([[5.1, 3.5, 1.4, 0.2]]))
    answer = engines.triton_grpc.infer("iris_sklearn", [tensor])
    assert answer.as_numpy("label").tolist() == [[0]]


def test_what_a_model_refuses_is_the_requests_error(engines: Engines) -> None:
    pixels = {"input": np.zeros((1, 3, 224, 223), np.float32)}
    with pytest.raises(tritonclient.http.InferenceServerException, match="unexpected shape"):
        ask(engines.triton, "imagenet_lite0", pixels)
    assert engines.triton.is_server_ready()
