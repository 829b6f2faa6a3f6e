"""docs/how-to/tracing-and-logs.md and several-workers.md: what they say to type does what they say."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import PAGES, Reader, sections, write_words
from serving import eventually

PAGE = sections("tracing-and-logs.md")
SLOW, TRACE, LOG = (PAGE[heading] for heading in ("How", "Where", "The"))
(WORKERS,) = sections("several-workers.md").values()
UNEXPLAINED = {"REQUEST_END", "INFER_RESPONSE_COMPLETE"}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, iris: Path) -> Iterator[Reader]:
    made = Reader(tmp_path_factory.mktemp("watching"), iris)
    write_words(made.models)
    with made.starts(SLOW.of("sh")[0]):
        yield made
    assert "Traceback" not in made.log_text


def test_metrics_have_the_families_that_the_page_names(reader: Reader) -> None:
    (_, page) = SLOW.of("sh")
    reader.types(TRACE.of("sh")[1])
    reader.types("""curl http://127.0.0.1:8000/v2/models/words/generate_stream -d '{"TEXT": "good morning"}'""")
    found = reader.types(page)
    for start in (
        'nv_inference_request_summary_us{model="iris_sklearn"',
        'nv_inference_queue_summary_us{model="iris_sklearn"',
        'nv_inference_first_response_histogram_ms_count{model="words"',
    ):
        assert start in found


def test_the_times_of_a_request_are_traced_until_that_is_ended(reader: Reader) -> None:
    begin, ask, end = TRACE.of("sh")
    (program,) = TRACE.of("python")
    assert json.loads(reader.types(begin)) == json.loads(TRACE.printed)
    reader.types(ask)
    (line,) = eventually(lambda: reader.runs(program).splitlines(), "a trace in the file")
    assert re.match(r"1 HTTP_RECV_START 0 HTTP_RECV_END \d+ REQUEST_START \d+ QUEUE_START \d+ COMPUTE_START", line)
    text = (PAGES / "tracing-and-logs.md").read_text(encoding="utf-8")
    assert not {name for name in line.split()[1::2] if f"`{name}`" not in text} - UNEXPLAINED
    assert json.loads(reader.types(end))["trace_level"] == ["OFF"]
    reader.types(ask)
    assert len(reader.runs(program).splitlines()) == 1


def test_the_log_is_changed_while_the_server_runs(reader: Reader) -> None:
    (change,) = LOG.of("sh")
    assert json.loads(reader.types(change)) == json.loads(LOG.printed)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no --workers")
def test_workers_are_one_server(tmp_path: Path, iris: Path) -> None:
    reader = Reader(tmp_path, iris)
    (command,) = WORKERS.of("sh")
    with reader.starts(command):
        loaded = r" \d+\.(\d) \S+\] \"successfully loaded 'iris_sklearn'"
        eventually(lambda: set(re.findall(loaded, reader.log_text)) == {"1", "2"}, "the model in both workers")
        for _ in range(8):
            reader.types(TRACE.of("sh")[1])
        page = reader.types("curl http://127.0.0.1:8002/metrics")
    (count,) = re.findall(
        r'^nv_inference_request_success\{model="iris_sklearn",version="1"\} (\d+)', page, re.MULTILINE
    )
    assert count == "8"
