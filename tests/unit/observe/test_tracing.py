"""Which requests are traced, and what is in the files afterwards."""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
import time
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bident.errors import Code, ServeError
from bident.observe.trace_settings import TraceSetting, TraceStart
from bident.observe.trace_text import text
from bident.observe.tracing import Tracing
from bident.wire.datatypes import DATATYPES
from bident.wire.infer import InferInput, InferRequest
from bident.wire.trace import Trace

TIMES = frozenset({"TIMESTAMPS"})


def tracing(
    folder: Path, *, level: frozenset[str] = TIMES, rate: int = 1, count: int = -1, together: int = 0
) -> Tracing:
    return Tracing(TraceStart(TraceSetting(level, rate, count, together), str(folder / "t")))


def begin(made: Tracing, model: str = "m") -> Trace | None:
    """A trace, if the request is sampled, whose request has reached its model."""
    request = InferRequest(model, "", "", {}, 1)
    trace = made.begin(request, {})
    if trace is not None:
        trace.start(request, model, 1)
    return trace


def ask(made: Tracing, times: int = 1, model: str = "m") -> int:
    """So many requests come and are answered; how many were traced."""
    traces = [trace for _ in range(times) if (trace := begin(made, model)) is not None]
    for trace in traces:
        trace.end()
    return len(traces)


def files(folder: Path) -> dict[str, int]:
    """How many traces each file holds."""
    return {
        path.name: len({entry["id"] for entry in json.loads(path.read_text())}) for path in sorted(folder.glob("t*"))
    }


def test_it_is_off_unless_it_is_asked_for(tmp_path: Path) -> None:
    assert not Tracing().is_on
    assert not tracing(tmp_path, level=frozenset()).is_on
    assert not tracing(tmp_path, rate=0).is_on
    assert not Tracing(TraceStart(TraceSetting(TIMES))).is_on
    assert tracing(tmp_path).is_on
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("rate", "count", "expected"), [(1, -1, 10), (3, -1, 3), (1, 4, 4), (3, 2, 2), (11, -1, 0)])
def test_one_in_so_many_and_so_many_in_all(tmp_path: Path, rate: int, count: int, expected: int) -> None:
    assert ask(tracing(tmp_path, rate=rate, count=count), 10) == expected


def test_all_traces_are_in_the_file(tmp_path: Path) -> None:
    made = tracing(tmp_path)
    ask(made, 3)
    made.close(10)

    assert files(tmp_path) == {"t": 3}


def test_the_file_is_whole_after_each_trace(tmp_path: Path) -> None:
    made = tracing(tmp_path)
    for number in (1, 2):
        ask(made)
        drain(made)
        assert files(tmp_path) == {"t": number}
    made.close(10)


def drain(made: Tracing) -> None:
    """Wait until what is there has been written."""
    done = threading.Event()
    made._sink.do(done.set)  # type: ignore[attr-defined]
    assert done.wait(10)


def test_a_limit_makes_numbered_files(tmp_path: Path) -> None:
    made = tracing(tmp_path, together=2)
    ask(made, 5)
    made.close(10)

    assert files(tmp_path) == {"t.0": 2, "t.1": 2, "t.2": 1}


def test_a_count_that_is_reached_makes_a_numbered_file_and_another_does_not(tmp_path: Path) -> None:
    made = tracing(tmp_path, count=3)
    ask(made, 9)
    made.update("", {"trace_count": "5"})
    ask(made, 2)
    made.close(10)

    assert files(tmp_path) == {"t": 2, "t.0": 3}


def test_a_trace_that_ends_after_the_settings_have_changed_is_written(tmp_path: Path) -> None:
    made = tracing(tmp_path, together=5)
    trace = begin(made)
    assert trace is not None
    made.update("", {"trace_level": ["OFF"]})
    assert not made.is_on
    trace.end()
    made.close(10)

    assert files(tmp_path) == {"t.0": 1}


def test_models_follow_what_holds_for_all_until_they_have_their_own(tmp_path: Path) -> None:
    made = tracing(tmp_path)
    made.update("m", {"trace_level": ["OFF"]})
    assert (ask(made), ask(made, model="n")) == (0, 1)

    made.update("", {"trace_rate": "2"})
    assert made.settings("m")["trace_rate"] == "2"
    assert made.settings("m")["trace_level"] == ["OFF"]

    made.update("m", {"trace_level": None})
    assert made.settings("m") == made.settings("")
    assert (ask(made), ask(made)) == (0, 1)


def test_a_model_may_be_the_only_one(tmp_path: Path) -> None:
    made = tracing(tmp_path, level=frozenset())
    made.update("m", {"trace_level": ["TIMESTAMPS"]})

    assert made.is_on
    assert (ask(made), ask(made, model="n")) == (1, 0)


def test_clearing_goes_back_to_the_command_line(tmp_path: Path) -> None:
    made = tracing(tmp_path, rate=7)
    assert made.update("", {"trace_rate": "3", "trace_count": "2"})["trace_rate"] == "3"

    assert made.update("", {"trace_rate": None})["trace_rate"] == "7"
    assert made.settings("")["trace_count"] == "2"


def test_what_is_left_of_a_count_is_shown_and_outlasts_other_changes(tmp_path: Path) -> None:
    made = tracing(tmp_path)
    made.update("", {"trace_count": "5"})
    ask(made, 2)

    assert made.settings("")["trace_count"] == "3"
    assert made.update("", {"log_frequency": "1"})["trace_count"] == "3"
    assert ask(made, 10) == 3


@pytest.mark.parametrize(
    ("model", "changes", "fragment"),
    [
        ("", {"trace_rate": "0"}, "Attempting to set invalid trace setting :sample rate must be non-zero"),
        ("m", {"trace_rate": "0"}, "1 is for every request (model 'm')"),
        ("nobody", {}, "Request for unknown model : nobody"),
    ],
)
def test_what_cannot_be_changes_nothing(tmp_path: Path, model: str, changes: dict[str, Any], fragment: str) -> None:
    made = tracing(tmp_path)
    made.is_served = lambda name: name == "m"
    before = made.settings("")

    with pytest.raises(ServeError) as refused:
        made.update(model, changes)

    assert refused.value.code is Code.INVALID_ARG
    assert fragment in refused.value.message
    assert made.settings("") == made.settings("m") == before
    assert ask(made) == 1


def test_without_a_file_nothing_can_be_switched_on() -> None:
    with pytest.raises(ServeError, match="trace file name is not given: start the server with --trace-config"):
        Tracing().update("", {"trace_level": ["TIMESTAMPS"]})


def test_a_file_that_cannot_be_written_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = tracing(tmp_path / "nowhere")
    ask(made, 3)
    made.close(10)

    file = tmp_path / "nowhere" / "t"
    assert [record.message for record in caplog.records] == [
        f"traces will not be written to {file}: its folder does not exist",
        f"traces cannot be written to {file}: No such file or directory",
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="pipes have no place among Windows' files")
def test_a_pipe_that_nobody_reads_holds_nothing_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.mkfifo(tmp_path / "t")
    made = tracing(tmp_path)
    ask(made)
    started = time.monotonic()
    made.close(20)

    assert time.monotonic() - started < 10, "the thread has ended by itself"
    assert [record.message.rpartition(": ")[2] for record in caplog.records] == ["it is no regular file"] * 2


class Disk(FileIO):
    """A file of a disk that may be full: then not even what there is room for is written whole."""

    is_full = True

    def write(self, data: Any) -> int:
        if self.is_full and len(data) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


@pytest.mark.parametrize("count", [-1, 1, 5], ids=["whole", "numbered", "part"])
def test_a_full_disk_leaves_no_file_that_is_no_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr("bident.observe.trace_files.FileIO", Disk)
    made = tracing(tmp_path, count=count)
    ask(made)
    made.close(10)

    assert files(tmp_path) == {}


def test_a_disk_that_becomes_full_costs_only_what_comes_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bident.observe.trace_files.FileIO", Disk)
    made = tracing(tmp_path)
    for is_full in (False, True, False):
        made._sink.do(partial(setattr, Disk, "is_full", is_full))
        ask(made)
    made.close(10)
    Disk.is_full = True

    assert files(tmp_path) == {"t": 2}


def test_what_does_not_fit_is_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bident.observe.trace_files._MOST_WAITING", 2)
    made = tracing(tmp_path)
    waiting: list[Any] = []
    monkeypatch.setattr(made._sink, "do", waiting.append)
    ask(made, 5)
    for step in waiting:
        step()

    assert files(tmp_path) == {"t": 2}
    assert "some are dropped" in caplog.text


@pytest.mark.parametrize(
    ("word", "data", "expected"),
    [
        ("FP32", np.array([0.1, 2, 1e20], np.float32), "0.1,2,1e+20"),
        ("FP32", [0.1, 2], "0.1,2"),
        ("FP64", np.array([0.1, -2.0]), "0.1,-2"),
        ("UINT8", np.array([0, 65], np.uint8), "0,65"),
        ("INT64", [2**62], str(2**62)),
        ("BOOL", np.array([True, False]), "1,0"),
        ("BYTES", np.array([b'a"b', b"\xff"], object), '"a"b","\\xff"'),
        ("BYTES", ["é"], '"é"'),
        ("FP32", np.zeros((0, 2), np.float32), ""),
    ],
)
@pytest.mark.parametrize("piece", [1, 2, 100])
def test_tensors_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, data: Any, expected: str, piece: int
) -> None:
    monkeypatch.setattr("bident.observe.trace_text._PIECE", piece)
    made = tracing(tmp_path, level=frozenset({"TENSORS"}))
    shape = data.shape if isinstance(data, np.ndarray) else (len(data),)
    tensor = InferInput("X", DATATYPES[word], shape, len(data), data)
    trace = begin(made)
    assert trace is not None
    trace.queue([tensor])

    model, seen = json.loads(f"[{text(trace)}]")
    assert model == {"id": 1, "model_name": "m", "model_version": 1}
    said = {"name": "X", "data": expected, "shape": ",".join(map(str, shape)), "dtype": word}
    assert seen == {"id": 1, "activity": "TENSOR_QUEUE_INPUT", "tensor": said}
