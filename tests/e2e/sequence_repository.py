"""Python models with sequence batching, such as a real Triton takes as well."""

from __future__ import annotations

from pathlib import Path

from model_folders import declared
from python_repository import write_python

NUMBERS = declared("input", "X", "INT32", "[ 1 ]") + declared("output", "Y", "INT32", "[ 1 ]")
TOLD = declared("output", "TOLD", "BYTES", "[ 1 ]")
STEPS = declared("output", "STEPS", "BYTES", "[ 1 ]")


def flag(name: str, kind: str, values: str) -> str:
    return f'control_input {{ name: "{name}" control {{ kind: CONTROL_SEQUENCE_{kind} {values} }} }}\n'


def correlation(word: str) -> str:
    return 'control_input { name: "CORRID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_' + word + " } }\n"


ALL_FLAGS = (
    flag("START", "START", "int32_false_true: [ 0, 1 ]")
    + flag("END", "END", "fp32_false_true: [ -1, 2 ]")
    + flag("READY", "READY", "bool_false_true: [ false, true ]")
)


def sequences(batch: int, batching: str) -> str:
    """The config of a model that adds up the numbers of each sequence."""
    return f"max_batch_size: {batch}\n{NUMBERS}{TOLD}sequence_batching {{\n{batching}}}\n"


def write_sequences(repository: Path) -> None:
    """The repository that both servers were asked about: see ``sequence_exchanges``."""
    long = "max_sequence_idle_microseconds: 60000000\n"
    write_python(
        repository, "direct", "sequences", sequences(4, f"direct {{ }}\n{long}{ALL_FLAGS}{correlation('UINT64')}")
    )
    write_python(
        repository, "oldest", "sequences", sequences(4, f"oldest {{ }}\n{long}{ALL_FLAGS}{correlation('UINT64')}")
    )
    write_python(repository, "single", "sequences", sequences(0, f"{long}{ALL_FLAGS}{correlation('INT32')}"))
    write_python(repository, "plain", "sequences", sequences(2, long))
    iterative = (
        f"max_batch_size: 4\n{NUMBERS}{STEPS}sequence_batching {{ oldest {{ }} iterative_sequence: true\n{long}}}\n"
    )
    write_python(repository, "again", "again", iterative)
