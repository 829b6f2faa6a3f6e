"""Implicit states: outputs that the server keeps for the sequence's next request."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bident.engine.servable import LoadedModel, Servable
from bident.engine.stats import ModelStats
from bident.model import initial_states
from bident.model.config import ModelConfig
from tests.unit.engine import engine_fakes
from tests.unit.engine.engine_fakes import (
    THREAD,
    Asked,
    Echo,
    NoModels,
    answered,
    clients_of,
    infer,
    on_loop,
    tensor,
)
from tests.unit.engine.sequence_site import DIRECT, OLDEST, of_sequence, sequence_config, step

LONG = "max_sequence_idle_microseconds: 3600000000\n"
STRATEGIES = pytest.mark.parametrize("strategy", [DIRECT, OLDEST])
SUM = 'state { input_name: "acc" output_name: "acc_next" data_type: TYPE_FP32 dims: [ 2 ] }'
COUNT = 'state { input_name: "acc_len" output_name: "acc_len_next" data_type: TYPE_INT32 dims: [ 1 ] }'
SEEN = 'state { input_name: "seen" output_name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }'
VARIABLE = """
input [ { name: "X", data_type: TYPE_FP32, dims: [ 1 ] } ]
output [ { name: "Y", data_type: TYPE_FP32, dims: [ -1 ] } ]
"""


def add(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The sum so far and the number of requests so far, as states; the sum is the answer too."""
    total = inputs["acc"] + inputs["X"]
    return {"Y": total * 10, "acc_len_next": inputs["acc_len"] + 1, "acc_next": total}


def append(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {"Y": np.concatenate([inputs["seen"], inputs["X"]], axis=1)}


def servable_with(config: ModelConfig, *instances: Any, directory: Path = Path()) -> Servable:
    loaded = LoadedModel(config, {}, {1: list(instances)})
    loaded.initial_states = initial_states.load(directory, config)
    servable = Servable(loaded, 1, ModelStats(), asyncio.get_running_loop(), clients_of(9), NoModels())
    engine_fakes._in_service.append(servable)
    return servable


@STRATEGIES
@on_loop
async def test_states_stay_with_their_names_and_their_sequences(strategy: str) -> None:
    instance = Echo(add)
    servable = servable_with(sequence_config(strategy + LONG + SUM + COUNT, THREAD), instance)
    requests = [step(key, 1 + 9 * place, start=turn == 0) for turn in range(3) for place, key in enumerate((1, "s-2"))]
    infer(servable, *requests)
    await answered(*requests)

    assert [request.tensors["Y"].tolist() for request in requests] == [
        [[10 * total, -10 * total]] for turn in (1, 2, 3) for total in (turn, 10 * turn)
    ]
    assert [batch["acc_len"].reshape(-1).tolist() for batch in instance.batches] == [[0, 0], [1, 1], [2, 2]]
    assert list(requests[0].tensors) == ["Y"], "a state that is no output stays in the server"


@STRATEGIES
@on_loop
async def test_start_begins_with_the_initial_state_again(strategy: str) -> None:
    servable = servable_with(sequence_config(strategy + LONG + SUM + COUNT), Echo(add))
    requests = [step(1, 1, start=True), step(1, 2), step(1, 3, start=True), step(1, 4, end=True)]
    infer(servable, *requests)
    await answered(*requests)
    assert [request.tensors["Y"][0, 0] for request in requests] == [10, 30, 30, 70]


@on_loop
async def test_a_failed_request_leaves_the_state_as_it_was() -> None:
    def fail(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if inputs["X"][0, 0] == 2:
            raise ValueError("no")
        return add(inputs)

    servable = servable_with(sequence_config(DIRECT + LONG + SUM + COUNT), Echo(fail))
    requests = [step(1, 1, start=True), step(1, 2), step(1, 4)]
    infer(servable, *requests)
    await answered(*requests)
    assert requests[1].response.error is not None
    assert requests[2].tensors["Y"][0, 0] == 50


@on_loop
async def test_asking_for_some_outputs_keeps_the_states_all_the_same() -> None:
    servable = servable_with(sequence_config(DIRECT + LONG + SUM + COUNT), Echo(add))
    requests = [step(1, 1, start=True), step(1, 2)]
    for request in requests:
        request.outputs = ["Y"]
    infer(servable, *requests)
    await answered(*requests)
    assert requests[1].tensors["Y"][0, 0] == 30


@STRATEGIES
@on_loop
async def test_a_state_may_be_an_output_and_change_its_shape(strategy: str) -> None:
    config = sequence_config(strategy + LONG + SEEN, THREAD, io=VARIABLE)
    servable = servable_with(config, Echo(append))
    given = [
        of_sequence(Asked(tensor("X", [key * 10 + turn], (1, 1))), key, start=turn == 0)
        for key in (1, 2)
        for turn in range(key + 1)
    ]
    infer(servable, *given)
    await answered(*given)
    # Without an initial state a size that is not fixed begins as 1.
    assert [request.tensors["Y"].tolist() for request in given] == [
        [[0, 10]],
        [[0, 10, 11]],
        [[0, 20]],
        [[0, 20, 21]],
        [[0, 20, 21, 22]],
    ]


@pytest.mark.parametrize(
    ("result", "fragment"),
    [
        ({"acc_next": np.zeros((1, 2), np.float64)}, "output 'acc_next' of model 'm' has datatype FP64"),
        ({"acc_next": np.zeros((1, 3), np.float32)}, "output 'acc_next' of model 'm' has shape [1, 3]"),
    ],
)
@on_loop
async def test_a_state_of_another_kind_than_declared_is_an_error(result: dict[str, np.ndarray], fragment: str) -> None:
    servable = servable_with(sequence_config(DIRECT + SUM), Echo(lambda inputs: {"Y": inputs["X"], **result}))
    request = step(1, 1, start=True)
    infer(servable, request)
    await answered(request)
    assert fragment in request.error.message


@on_loop
async def test_a_client_does_not_share_memory_with_the_state() -> None:
    config = sequence_config(DIRECT + LONG + SEEN, io=VARIABLE)
    servable = servable_with(config, Echo(append))
    first, second = (of_sequence(Asked(tensor("X", [turn], (1, 1))), 1, start=turn == 1) for turn in (1, 2))
    infer(servable, first)
    await answered(first)
    first.tensors["Y"][...] = 99
    infer(servable, second)
    await answered(second)
    assert second.tensors["Y"].tolist() == [[0, 1, 2]]
