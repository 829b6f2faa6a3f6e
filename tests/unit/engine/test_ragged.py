"""Ragged batches: requests of different shapes run together, each gets what is its."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bident.engine.ragged import RaggedMerge, merge_of
from bident.model.config import ModelConfig
from tests.unit.engine.engine_fakes import (
    BATCHING,
    INLINE,
    Asked,
    Echo,
    answered,
    infer,
    model_config,
    on_loop,
    servable_of,
    tensor,
)
from tests.unit.engine.engine_hands import Hand, running, served

IO = """
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "N" data_type: TYPE_INT32 dims: [ 1 ] } ]
"""
SCATTER = 'batch_output [ { target_name: "Y" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "X" } ]'


def computed(kind: str, word: str = "INT32") -> str:
    return f'batch_input [ {{ kind: BATCH_{kind} target_name: "B" data_type: TYPE_{word} source_input: "X" }} ]'


def ragged(text: str = SCATTER, **rest: Any) -> ModelConfig:
    return model_config(f"{BATCHING} {INLINE} {text}", io=rest.pop("io", IO), **rest)


def asked(*rows: list[float]) -> Asked:
    values = [value for one in rows for value in one]
    return Asked(tensor("X", values, (len(rows), len(rows[0]))))


def double(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {"Y": inputs["X"] * 2, "N": inputs["B"].reshape(-1, 1)}


@on_loop
async def test_requests_of_different_lengths_run_together_and_get_their_own_elements() -> None:
    instance = Echo(double)
    config = ragged(SCATTER + computed("ELEMENT_COUNT"))
    servable = servable_of(config, instance)
    requests = [asked([1, 2, 3]), asked([4]), asked([5, 6])]
    infer(servable, *requests)
    await answered(*requests)

    assert len(instance.batches) == 1
    assert instance.batches[0]["X"].tolist() == [1, 2, 3, 4, 5, 6]
    assert [request.tensors["Y"].tolist() for request in requests] == [[[2, 4, 6]], [[8]], [[10, 12]]]
    assert [request.tensors["N"].tolist() for request in requests] == [[[3]], [[1]], [[2]]]
    assert [list(request.tensors) for request in requests] == [["Y", "N"]] * 3
    assert (servable.stats.success.count, servable.stats.executions) == (3, 1)


@on_loop
async def test_a_lone_request_is_flat_too() -> None:
    instance = Echo(lambda inputs: {"Y": inputs["X"], "N": np.zeros((2, 1), np.int32)})
    servable = servable_of(ragged(), instance)
    request = asked([1, 2], [3, 4])
    infer(servable, request)
    await answered(request)
    assert instance.batches[0]["X"].shape == (4,)
    assert request.tensors["Y"].tolist() == [[1, 2], [3, 4]]


@on_loop
async def test_inputs_that_are_not_ragged_must_still_agree() -> None:
    io = IO + 'input [ { name: "Z" data_type: TYPE_FP32 dims: [ -1 ] } ]'
    instance = Echo(lambda inputs: {"Y": inputs["X"], "N": np.zeros((len(inputs["Z"]), 1), np.int32)})
    servable = servable_of(ragged(io=io), instance)
    requests = [
        Asked(tensor("X", [1.0] * length, (1, length)), tensor("Z", [0.0] * other, (1, other)))
        for length, other in ((1, 2), (2, 2), (3, 1))
    ]
    infer(servable, *requests)
    await answered(*requests)
    assert [batch["Z"].shape for batch in instance.batches] == [(2, 2), (1, 1)]
    assert [batch["X"].shape for batch in instance.batches] == [(3,), (3,)]


@on_loop
async def test_only_some_outputs_may_be_wanted() -> None:
    servable = servable_of(ragged(SCATTER + computed("ELEMENT_COUNT")), Echo(double))
    requests = [asked([1, 2]), asked([3])]
    requests[1].outputs = ["N"]
    infer(servable, *requests)
    await answered(*requests)
    assert list(requests[0].tensors) == ["Y", "N"]
    assert {name: array.tolist() for name, array in requests[1].tensors.items()} == {"N": [[1]]}


@on_loop
async def test_an_output_of_another_length_is_an_error() -> None:
    instance = Echo(lambda inputs: {"Y": inputs["X"][1:], "N": np.zeros((2, 1), np.int32)})
    servable = servable_of(ragged(), instance)
    requests = [asked([1, 2]), asked([3])]
    infer(servable, *requests)
    await answered(*requests)
    assert "output 'Y' of model 'm' has 2 elements, but by the shapes of input 'X'" in requests[0].error.message
    assert "it should have 3" in requests[1].error.message


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("ELEMENT_COUNT", [6, 4, 1]),
        ("ACCUMULATED_ELEMENT_COUNT", [6, 10, 11]),
        ("ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", [0, 6, 10, 11]),
        ("MAX_ELEMENT_COUNT_AS_SHAPE", [0, 0, 0, 0, 0, 0]),
        ("ITEM_SHAPE", [[3], [3], [4], [1]]),
        ("ITEM_SHAPE_FLATTEN", [3, 3, 4, 1]),
    ],
)
@pytest.mark.parametrize(("word", "dtype"), [("INT32", np.int32), ("FP32", np.float32)])
def test_what_is_computed_of_the_shapes(kind: str, wanted: list[Any], word: str, dtype: Any) -> None:
    merge = merge_of(ragged(computed(kind, word)))
    requests = [asked([1, 2, 3], [4, 5, 6]), asked([7, 8, 9, 10]), asked([11])]
    for request in requests:
        request.batch_size = request.inputs["X"].shape[0]
    found = merge.gather(list(requests), 4)
    assert found["B"].tolist() == wanted
    assert found["B"].dtype == dtype
    assert found["X"].tolist() == list(range(1, 12))


def test_ordinary_models_have_the_ordinary_merge() -> None:
    assert not isinstance(merge_of(model_config()), RaggedMerge)


@on_loop
async def test_a_model_that_sees_single_requests_gets_each_in_its_own_shape() -> None:
    hand = Hand()
    servable = await served(hand, config=ragged(""))
    requests = [asked([1, 2, 3]), asked([4]), asked([5, 6], [7, 8])]
    infer(servable, *requests)
    held = await running(hand)
    given: Any = held.inputs
    assert [inputs["X"].tolist() for inputs in given] == [[[1, 2, 3]], [[4]], [[5, 6], [7, 8]]]
    for index, inputs in enumerate(given):
        numbers = np.zeros((len(inputs["X"]), 1), np.int32)
        held.answers.replied(index, {"Y": inputs["X"], "N": numbers})
    held.executed()
    await answered(*requests)
    assert requests[2].tensors["Y"].tolist() == [[5, 6], [7, 8]]


@on_loop
async def test_a_request_whose_numbers_do_not_fit_leaves_the_others_alone() -> None:
    hand = Hand()
    servable = await served(hand, config=ragged(""))
    good, bad = asked([1, 2, 3]), asked([1e39])
    infer(servable, good, bad)
    held = await running(hand)
    assert len(held.requests) == 1
    assert "out of range for FP32" in bad.error.message
    held.answers.replied(0, {"Y": np.float32([[1, 2, 3]]), "N": np.zeros((1, 1), np.int32)})
    held.executed()
    await answered(good)
