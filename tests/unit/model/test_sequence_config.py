"""``sequence_batching``: what is read of it, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from bident.errors import ConfigError
from bident.model import initial_states, normalise, pbtxt, validate
from bident.model.config import ModelConfig

IO = """
input { name: "X" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ 2 ] }
"""
START = 'control_input { name: "S" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0.5, 2 ] } }'
ID = 'control_input { name: "ID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } }'


def config(batching: str, *, batch: int = 4, io: str = IO) -> ModelConfig:
    text = f'name: "m" backend: "fake" max_batch_size: {batch} {io} sequence_batching {{ {batching} }}'
    proto = pbtxt.parse(text.encode(), "test")
    normalise.apply(proto, 1)
    validate.check(proto, "m/config.pbtxt")
    return ModelConfig.from_proto(proto)


def state(
    initial: str = "", *, name: str = "acc", out: str = "acc_next", word: str = "FP32", dims: str = "[ 2 ]"
) -> str:
    return f'state {{ input_name: "{name}" output_name: "{out}" data_type: TYPE_{word} dims: {dims} {initial} }}'


def initial(data: str, *, word: str = "FP32", dims: str = "[ 2 ]", name: str = "first") -> str:
    return f'initial_state {{ name: "{name}" data_type: TYPE_{word} dims: {dims} {data} }}'


def refusal(batching: str, **rest: str) -> str:
    with pytest.raises(ConfigError) as raised:
        config(batching, **rest)  # type: ignore[arg-type]
    return raised.value.message


def test_what_a_config_leaves_out() -> None:
    batching = config("").sequence_batching
    assert batching is not None
    assert not batching.is_oldest
    assert not batching.is_iterative
    assert batching.max_idle_us == 1_000_000
    assert (batching.max_queue_delay_us, batching.minimum_slot_utilization) == (0, 0)
    assert (batching.controls, batching.states) == ((), ())


def test_what_a_config_says() -> None:
    batching = config(
        "oldest { max_candidate_sequences: 9 max_queue_delay_microseconds: 7 preferred_batch_size: [ 4, 2 ] } "
        f"iterative_sequence: true max_sequence_idle_microseconds: 5 {START} {ID} {state()}"
    ).sequence_batching
    assert batching is not None
    assert batching.is_oldest
    assert batching.is_iterative
    assert (batching.max_idle_us, batching.max_queue_delay_us, batching.max_candidates) == (5, 7, 9)
    assert batching.preferred_batch_sizes == (2, 4)
    start, identity = batching.controls
    assert (start.kind, start.name, start.datatype.name, start.values) == ("START", "S", "FP32", (0.5, 2))
    assert (identity.kind, identity.name, identity.datatype.name, identity.values) == ("CORRID", "ID", "BYTES", ())
    assert batching.states[0].initial.dims == (2,)


def test_fewer_than_no_candidates_are_as_many_as_a_batch_takes_as_with_triton() -> None:
    batching = config("oldest { max_candidate_sequences: -1 }").sequence_batching
    assert batching is not None
    assert batching.max_candidates == 0


def test_a_model_without_sequences_has_none() -> None:
    proto = pbtxt.parse(f'name: "m" backend: "fake" max_batch_size: 4 {IO}'.encode(), "test")
    assert ModelConfig.from_proto(proto).sequence_batching is None


@pytest.mark.parametrize(
    ("batching", "fragment"),
    [
        (state(name=""), "must specify 'input_name' and 'output_name'"),
        (state(dims="[ 0 ]"), "dimension must be integer >= 1, or -1"),
        (state() + state(out="other"), "'acc' is an input or a state more than once (input_name)"),
        (state() + state(name="other"), "'acc_next' is an input or a state more than once (output_name)"),
        (state(name="X"), "'X' is an input or a state more than once"),
        (START + state(name="S"), "'S' is an input or a state more than once"),
        (state(out="Y", word="INT32"), "is also output 'Y' of m, with data_type TYPE_FP32, not TYPE_INT32"),
        (state("use_growable_memory: true"), "'use_growable_memory' can only work with KIND_GPU model instances"),
        (state(initial("zero_data: true") * 2), "must contain exactly one or zero element. Found '2' elements."),
        (state(initial("")), "to have state_data set"),
        (state(initial("zero_data: true", name="")), "Field 'name' must be set when using initial_state"),
        (state(initial("zero_data: true", word="INT32")), "does not match the state data type"),
        (state(initial("zero_data: true", dims="[ 2, 1 ]")), "for state input 'acc'. 2 != 1"),
        (state(initial("zero_data: true", dims="[ -1 ]")), "contains variable dimensions"),
        (state(initial("zero_data: true", dims="[ 3 ]")), "doesn't match 'state' dim description. 3 != 2"),
        (
            state(initial("zero_data: true", dims="[ 0 ]"), dims="[ -1 ]"),
            "doesn't match 'state' dim description. 0 != -1",
        ),
        (state(initial('data_file: "../../etc/passwd"')), "must stay within model directory"),
    ],
)
def test_states_that_cannot_be_kept_are_refused(batching: str, fragment: str) -> None:
    assert fragment in refusal(batching)


# What a state starts with


def test_states_start_with_zeros(tmp_path) -> None:
    found = initial_states.load(tmp_path, config(state(dims="[ -1, 2 ]") + state(name="s", out="t", word="STRING")))
    assert found["acc"].tolist() == [[[0, 0]]]
    assert found["acc"].dtype == np.float32
    assert found["s"].tolist() == [[b"", b""]]
    assert not found["acc"].flags.writeable


def test_states_start_with_what_a_file_says(tmp_path) -> None:
    (tmp_path / "initial_state").mkdir()
    (tmp_path / "initial_state" / "numbers").write_bytes(np.float32([1, 2, 3]).tobytes())
    (tmp_path / "initial_state" / "texts").write_bytes(b"\x01\0\0\0a\x00\0\0\0")
    texts = state(initial('data_file: "texts"', word="STRING"), name="s", out="t", word="STRING")
    declared = config(state(initial('data_file: "numbers"')) + texts, batch=0)
    found = initial_states.load(tmp_path, declared)
    assert found["acc"].tolist() == [1, 2]
    assert found["s"].tolist() == [b"a", b""]


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        (None, "failed to open text file for read"),
        (b"\0" * 7, "initial_state setting expects 8 bytes, but the data provided from numbers only has 7 bytes"),
    ],
)
def test_files_that_will_not_do_are_refused(tmp_path, content: bytes | None, fragment: str) -> None:
    (tmp_path / "initial_state").mkdir()
    if content is not None:
        (tmp_path / "initial_state" / "numbers").write_bytes(content)
    with pytest.raises(ConfigError) as raised:
        initial_states.load(tmp_path, config(state(initial('data_file: "numbers"'))))
    assert fragment in raised.value.message


def test_a_state_of_a_size_that_no_server_has_is_refused(tmp_path) -> None:
    with pytest.raises(ConfigError, match="each sequence has its own"):
        initial_states.load(tmp_path, config(state(dims="[ 100000, 100000 ]")))
