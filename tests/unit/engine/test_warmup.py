"""Instances run their warmup samples before anybody else may use them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from bident.backends.base import Instance, ModelFiles
from bident.engine import warmup_samples
from bident.engine.servable import Servable
from bident.engine.warmup import Sample, Warmup
from bident.errors import Code, ConfigError, ServeError
from bident.model.config import ModelConfig
from bident.wire.datatypes import BY_CONFIG_NAME
from tests.unit.engine.engine_fakes import (
    BATCHING,
    IO,
    THREAD,
    Echo,
    ask,
    model_config,
    on_loop,
    servable_of,
    turns,
    until,
)
from tests.unit.engine.engine_hands import BROKEN, Hand
from tests.unit.engine.engine_house import House

X = 'inputs { key: "X" value { data_type: TYPE_FP32 dims: [ 2 ] %s } }'
STRINGS = """
input [ { name: "X", data_type: TYPE_STRING, dims: [ 2 ] } ]
output [ { name: "Y", data_type: TYPE_STRING, dims: [ 2 ] } ]
"""


def sample(data: str = "zero_data: true", *, name: str = "s", size: int = 1, more: str = "") -> str:
    return f'model_warmup {{ name: "{name}" batch_size: {size} {more} {X % data} }}'


def read(text: str, folder: Path = Path("nowhere"), *, io: str = IO, batch: int = 8) -> list[Sample]:
    return warmup_samples.read(folder, model_config(text, io=io, batch=batch))


def refusal(text: str, folder: Path = Path("nowhere"), *, io: str = IO) -> str:
    with pytest.raises(ConfigError) as refused:
        read(text, folder, io=io)
    return refused.value.message


def recorded(folder: Path, data: bytes) -> Path:
    (folder / "warmup").mkdir(parents=True)
    (folder / "warmup" / "x").write_bytes(data)
    return folder


async def warmed(servable: Servable, text: str, folder: Path = Path("nowhere")) -> None:
    async def in_pool(step: object, *arguments: object) -> None:
        await asyncio.get_running_loop().run_in_executor(None, step, *arguments)  # type: ignore[arg-type]

    samples = warmup_samples.read(folder, model_config(f"{BATCHING} {text}"))
    await servable.warm_up(samples, in_pool)  # type: ignore[arg-type]


# What a sample is


@pytest.mark.parametrize(("batch", "shape"), [(8, (1, 2)), (0, (2,))])
def test_each_request_of_a_sample_has_one_row(batch: int, shape: tuple[int, ...]) -> None:
    text = sample(size=3, more="count: 2")
    (found,) = read(text, batch=batch)

    assert (found.name, found.size, found.count) == ("s", 3, 2)
    assert found.inputs["X"].shape == shape
    assert np.asarray(found.inputs["X"].data).tolist() == np.zeros(shape).tolist()


def test_a_sample_without_a_count_runs_once_and_one_of_batch_size_0_not_at_all() -> None:
    assert [found.count for found in read(sample())] == [1]
    assert read(sample(size=0)) == []


@pytest.mark.parametrize(
    "word",
    BY_CONFIG_NAME,
)
def test_random_data_of_any_datatype_is_fit_to_be_computed_with(word: str) -> None:
    tensor = f"data_type: {word} dims: [ 500 ]"
    io = f'input [ {{ name: "X" {tensor} }} ] output [ {{ name: "Y" {tensor} }} ]'
    told = f'model_warmup {{ name: "s" batch_size: 1 inputs {{ key: "X" value {{ {tensor} random_data: true }} }} }}'

    (found,) = read(told, io=io)

    data = np.asarray(found.inputs["X"].data)
    assert data.dtype == found.inputs["X"].datatype.numpy
    if word == "TYPE_STRING":
        assert set(data.reshape(-1).tolist()) == {b""}
    else:
        values = data.astype(np.float64)
        assert len(np.unique(values)) > 1
        assert values.min() >= 0
        assert values.max() <= 100


def test_recorded_data_is_read_from_the_folder_warmup(tmp_path: Path) -> None:
    numbers = np.array([1.5, -2, 99], np.float32)
    (found,) = read(sample('input_data_file: "x"'), recorded(tmp_path, numbers.tobytes()))

    assert np.asarray(found.inputs["X"].data).tolist() == [[1.5, -2]], "what is too much is left out, as by Triton"


def test_recorded_strings_lie_as_in_a_binary_request(tmp_path: Path) -> None:
    text = sample('input_data_file: "x"').replace("FP32", "STRING")
    (found,) = read(text, recorded(tmp_path, b"\2\0\0\0hi\0\0\0\0"), io=STRINGS)
    assert np.asarray(found.inputs["X"].data).tolist() == [[b"hi", b""]]


# Refusals: what a real Triton 2.51 said, and then what to change


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            sample().replace("TYPE_FP32", "TYPE_INT32"),
            "inference input 'X' data-type is 'INT32', but model 'm' expects 'FP32'",
        ),
        (
            sample().replace("[ 2 ]", "[ 3 ]"),
            "unexpected shape for input 'X' for model 'm'. Expected [-1,2], got [1,3].",
        ),
        (
            'model_warmup { name: "s" batch_size: 1 }',
            "expected 1 inputs but got 0 inputs for model 'm'. Got input(s) [], but missing required input(s) ['X']. "
            "Please provide all required input(s).",
        ),
    ],
)
def test_what_the_model_would_refuse_is_refused(text: str, said: str) -> None:
    message = refusal(text)
    assert message.startswith(f"[request id: <id_unknown>] {said}")
    assert message.endswith("(warmup sample 's'); correct model_warmup")


def test_recorded_data_that_is_not_there_or_too_short_is_refused(tmp_path: Path) -> None:
    text = sample('input_data_file: "x"')
    assert refusal(text, tmp_path).startswith(
        f"failed to open text file for read {tmp_path / 'warmup' / 'x'}: No such file or directory"
    )
    assert refusal(text, recorded(tmp_path, b"1234")).startswith(
        "warmup setting expects 8 bytes, but the data provided from x only has 4 bytes"
    )


def test_strings_that_are_cut_off_are_refused(tmp_path: Path) -> None:
    folder = recorded(tmp_path, b"\2\0\0\0hi\0\0\0")
    message = refusal(sample('input_data_file: "x"').replace("FP32", "STRING"), folder, io=STRINGS)
    assert message.startswith("incomplete string length indicator for inference input 'X'")
    assert str(folder) in message


def test_a_sample_that_no_memory_could_hold_is_refused() -> None:
    io = IO.replace("[ 2 ]", "[ -1 ]")
    assert "make its dims" in refusal(sample().replace("[ 2 ]", f"[ {10**18} ]"), io=io)
    assert "make its dims" in refusal(sample().replace("[ 2 ]", f"[ {10**18}, {10**18} ]"), io=io)
    assert "lower its batch_size, 8" in refusal(sample(size=8).replace("[ 2 ]", f"[ {2**26} ]"), io=io)


# Runs


@on_loop
async def test_every_instance_runs_every_sample_as_often_as_it_says() -> None:
    instances = [Echo(), Echo()]
    servable = servable_of(model_config(BATCHING + THREAD + "instance_group { count: 2 }"), *instances)

    await warmed(servable, sample(size=3, more="count: 2") + sample(name="t"))

    assert [instance.rows for instance in instances] == [[3, 3, 1], [3, 3, 1]]
    stats = servable.stats
    # As a real Triton 2.51 counts warmup.
    assert (stats.inferences, stats.executions, stats.success.count) == (14, 6, 14)


@on_loop
async def test_a_model_that_does_not_batch_gets_the_requests_one_by_one() -> None:
    instance = Echo()
    servable = servable_of(model_config(THREAD, batch=0), instance)
    samples = read(sample(size=3), batch=0)

    async def in_pool(step: object, *arguments: object) -> None:
        step(*arguments)  # type: ignore[operator]

    await servable.warm_up(samples, in_pool)

    assert [batch["X"].shape for batch in instance.batches] == [(2,)] * 3


@on_loop
async def test_instances_that_see_single_requests_are_warmed_up_too_and_then_serve() -> None:
    hands = [Hand(), Hand()]
    servable = servable_of(model_config(BATCHING + "instance_group { count: 2 }"), *hands)  # type: ignore[arg-type]
    await servable.start()

    warming = asyncio.ensure_future(warmed(servable, sample(size=2)))
    await until(lambda: all(hand.batches for hand in hands))
    assert [len(hand.batches[0].requests) for hand in hands] == [2, 2], "side by side"
    hands[0].batches[0].finish()
    hands[1].batches[0].reply(0)
    hands[1].batches[0].executed()
    assert not warming.done()
    hands[1].batches[0].reply(1)
    await warming

    requests = [ask(1), ask(2)]
    for request in requests:
        servable.infer(request)
    await turns()
    for hand in hands:
        for held in hand.batches[1:]:
            held.finish()
    await until(lambda: all(request.is_answered for request in requests))
    assert servable.scheduler.is_idle


@on_loop
async def test_all_errors_of_a_sample_are_told() -> None:
    hand = Hand()
    servable = servable_of(model_config(BATCHING), hand)  # type: ignore[arg-type]
    await servable.start()

    warming = asyncio.ensure_future(warmed(servable, sample(size=2)))
    await until(lambda: hand.batches)
    for index in (0, 1):
        hand.batches[0].answers.replied(index, {}, error=BROKEN)
    hand.batches[0].executed()

    with pytest.raises(ServeError) as failed:
        await warming
    assert failed.value.code is Code.INVALID_ARG
    assert failed.value.message == "failed to run warmup sample 's': the model failed; the model failed; "


@on_loop
async def test_an_instance_that_refuses_its_sample_fails_it() -> None:
    hand = Hand()
    servable = servable_of(model_config(BATCHING), hand)  # type: ignore[arg-type]
    await servable.start()
    hand.refusal = BROKEN

    with pytest.raises(ServeError, match="failed to run warmup sample 's': the model failed; "):
        await warmed(servable, sample())


# Loads


def unlucky(files: ModelFiles, config: ModelConfig) -> Instance:
    def fail(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        raise ValueError("unlucky")

    return Echo(fail if config.name == "unlucky" else None)


@on_loop
async def test_a_model_is_ready_once_it_is_warm(tmp_path: Path) -> None:
    held = Echo()
    held.hold()
    house = House(tmp_path, lambda files, config: held)

    loading = asyncio.ensure_future(house.load(text=BATCHING + sample()))
    await until(lambda: held.running)
    assert house.states() == {1: "LOADING"}
    assert house.absent().code is Code.NOT_FOUND
    held.release()
    await loading

    assert house.states() == {1: "READY"}


@on_loop
async def test_a_failed_warmup_fails_the_load_and_closes_the_instances(tmp_path: Path) -> None:
    house = House(tmp_path, unlucky)

    refused = await house.refusal("unlucky", BATCHING + sample() + "instance_group { count: 2 }")

    assert "version 1 is at UNAVAILABLE state: failed to run warmup sample 's': " in refused.message
    assert "unlucky" in refused.message
    assert [made.closed for made in house.backend.made] == [1, 1]  # type: ignore[attr-defined]


@on_loop
async def test_a_reload_whose_warmup_fails_leaves_the_old_one_in_service(tmp_path: Path) -> None:
    house = House(tmp_path, unlucky)
    await house.load("unlucky")

    await house.refusal("unlucky", BATCHING + sample())

    assert house.states("unlucky") == {1: "READY"}


@on_loop
async def test_a_sample_that_is_wrong_is_found_before_the_model_is_loaded(tmp_path: Path) -> None:
    house = House(tmp_path)

    await house.refusal(text=BATCHING + sample('input_data_file: "x"'))

    assert house.backend.made == []


# Sequence models


SEQUENCE = """
sequence_batching {
  control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }
  control_input { name: "ID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }
  state { input_name: "S" output_name: "T" data_type: TYPE_FP32 dims: [ 3 ] }
}
"""


def requests_of(text: str) -> list[dict[str, list[object]]]:
    config = model_config(text)
    warmup = Warmup(config, warmup_samples.read(Path("nowhere"), config), None, {"S": np.zeros((1, 3), np.float32)})  # type: ignore[arg-type]
    batches = [batch for _, batch, _ in warmup._batches()]
    assert all(request.sequence_start and request.sequence_end for batch in batches for request in batch.requests)
    return [
        {name: np.asarray(tensor.data).tolist() for name, tensor in request.inputs.items()}
        for batch in batches
        for request in batch.requests
    ]


def test_each_request_is_a_whole_sequence() -> None:
    assert requests_of(SEQUENCE + sample()) == [
        {"X": [[0, 0]], "START": [[1]], "ID": [[0]], "S": [[0, 0, 0]]},
    ]


def test_a_sample_may_say_what_the_control_tensors_are() -> None:
    start = 'inputs { key: "START" value { data_type: TYPE_INT32 dims: [ 1 ] zero_data: true } }'
    text = f'{SEQUENCE} model_warmup {{ name: "s" batch_size: 1 {X % "zero_data: true"} {start} }}'
    assert requests_of(text)[0]["START"] == [[0]]
