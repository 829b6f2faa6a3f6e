"""docs/how-to/grpc.md and shared-memory.md: every program of theirs prints what they say."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from pages import Reader, sections, write_words

from bident.doors.grpc.limits import MOST_MESSAGE, GrpcLimits
from bident.doors.grpc.status import STATUS
from bident.errors import Code

PAGE = sections("grpc.md")
(MEMORY,) = sections("shared-memory.md").values()


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, iris: Path) -> Iterator[Reader]:
    made = Reader(tmp_path_factory.mktemp("grpc"), iris)
    write_words(made.models)
    (command,) = MEMORY.of("sh")
    with made.starts(command):
        yield made
    assert "Traceback" not in made.log_text


@pytest.mark.parametrize("heading", ["One", "Many", "A"])
def test_a_program_prints_what_the_page_says(reader: Reader, heading: str) -> None:
    (program,) = PAGE[heading].of("python")
    (printed,) = PAGE[heading].of("")
    assert reader.runs(program) == printed.strip()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no POSIX shared memory")
@pytest.mark.parametrize("door", ["grpc", "http"])
def test_tensors_go_through_shared_memory_over_both_doors(reader: Reader, door: str) -> None:
    (program,) = MEMORY.of("python")
    (printed,) = MEMORY.of("")
    if door == "http":
        program = program.replace("tritonclient.grpc", "tritonclient.http").replace(":8001", ":8000")
    assert reader.runs(program) == printed.strip()


def test_no_program_goes_untested() -> None:
    assert {heading for heading, section in PAGE.items() if section.of("python") or section.of("sh")} == {
        "One",
        "Many",
        "A",
    }


def test_the_table_of_statuses_is_the_servers() -> None:
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "grpc.md").read_text(encoding="utf-8")
    for code in (Code.INVALID_ARG, Code.NOT_FOUND, Code.UNAVAILABLE, Code.UNSUPPORTED, Code.INTERNAL):
        assert f"| {STATUS[code].name} |" in text
    assert MOST_MESSAGE + 1 == 2 << 30
    assert GrpcLimits().message_bytes == MOST_MESSAGE


def test_a_question_may_be_compressed(reader: Reader) -> None:
    (program,) = PAGE["One"].of("python")
    assert reader.runs(program.replace("client_timeout=2.0", 'compression_algorithm="gzip"')) == "[[0]]"


def test_a_decoupled_model_is_refused_outside_of_a_stream(reader: Reader) -> None:
    with triton.InferenceServerClient(reader.address("8001")) as client:
        text = triton.InferInput("TEXT", [1], "BYTES")
        text.set_data_from_numpy(np.array(["good morning"], np.object_))
        with pytest.raises(triton.InferenceServerException, match="ModelStreamInfer"):
            client.infer("words", [text])


def test_reflection_lists_what_the_page_names(reader: Reader) -> None:
    # ListServices: field 7 of ServerReflectionRequest. The answer holds the names as they are.
    with grpc.insecure_channel(reader.address("8001")) as channel:
        ask = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
        (answer,) = ask(iter([b"\x3a\x01*"]), timeout=10)
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"", timeout=10) == b"\x08\x01"
    assert b"inference.GRPCInferenceService" in answer
    assert b"grpc.health.v1.Health" in answer
