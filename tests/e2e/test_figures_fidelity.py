"""Figures, metrics, traces and settings as a real Triton 2.51 has them after the same traffic.

What the real server said is kept in ``data/triton_2_51_figures.json``: CI has none. Where Bident's differ on purpose,
it stands here what they are, and in ``docs/differences.md`` why.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from figures_traffic import DATA, SETTINGS, Figured, flags, held_body, samples, write_figured
from serving import TensorServer, eventually
from wire_http import Wire

KEPT: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))

STATS = {
    # An error that the model answers is no success.
    "one": {"success": 7, "fail": 3, "queue": 7, "compute_input": 7, "compute_infer": 7, "compute_output": 7},
    # One is refused because the queue is full, and one client goes, which 2.51 does not notice: both are failures.
    "held": {"success": 1, "fail": 2, "queue": 1, "compute_input": 1, "compute_infer": 1, "compute_output": 1},
    # One request, one failure.
    "twice": {"fail": 1},
}
"""Where ``inference_stats`` differ."""

FAILED_OTHERWISE = {
    'nv_inference_request_failure{model="one",reason="BACKEND",version="1"}': 3.0,
    'nv_inference_request_failure{model="held",reason="CANCELED",version="1"}': 1.0,
    'nv_inference_request_failure{model="held",reason="REJECTED",version="1"}': 1.0,
    'nv_inference_request_failure{model="twice",reason="OTHER",version="1"}': 1.0,
}
MORE_FAMILIES = {
    "nv_model_load_duration_secs": ["gauge", ["model", "version"], True],  # as later versions than 2.51
    "nv_inference_first_response_histogram_ms": ["histogram", ["le", "model", "version"], True],
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory, plugins: Path) -> Iterator[dict[str, Any]]:
    """What Bident says after the traffic, in the form in which the real server's is kept."""
    base = tmp_path_factory.mktemp("figured")
    write_figured(base / "repository", base)
    with TensorServer(base / "repository", base / "server.log", *flags(base), plugins=plugins) as server:
        figured = Figured(server.port, server.metrics_port, base)
        figured.send_all()

        def be_refused(second: Wire) -> None:
            assert figured.ask.post("/v2/models/held/infer", held_body()).status == 503
            second.socket.close()
            pending = 'nv_inference_pending_request_count{model="held",version="1"}'
            figured.wait(lambda: figured.sample(pending) == 0, "the request of a client that has gone is given up")

        figured.hold_up("held", base, be_refused)
        figured.hold_up("impatient", base, lambda second: second.read())
        eventually(lambda: len(list(base.glob("trace.json.*[0-9]"))) >= MOST_TRACES, "all traces are written")
        found = figured.said()
        found["page"] = samples(figured.page())
        found["rows"] = figured.ask.get("/v2/models/stats").json["model_stats"]
        found["settings"] = figured.settings()
        figured.ask.close()
        yield found
        assert "Traceback" not in server.log_text.replace("Traceback (most recent call last):\\n", "")


REFUSED = 5
"""Requests that never reach a queue; the real server begins traces for them and forgets them."""
MOST_TRACES = len(KEPT["traces"]) + REFUSED


@pytest.mark.parametrize("model", KEPT["stats"])
def test_statistics_count_the_same(said: dict[str, Any], model: str) -> None:
    kept = KEPT["stats"][model]
    expected = {**kept, "inference_stats": {**kept["inference_stats"], **STATS.get(model, {})}}
    if model == "one":
        expected["inference_count"] = 7
    if model == "held":
        expected.update(inference_count=1, execution_count=1, batch_stats={"1": [1, 1, 1]})
    assert said["stats"][model] == expected


def test_metrics_count_the_same(said: dict[str, Any]) -> None:
    one_less = {
        series: value - 1
        for series, value in KEPT["samples"].items()
        if (value == 2 and 'model="held"' in series) or (value == 8 and 'model="one"' in series)
    }
    expected = {**KEPT["samples"], **FAILED_OTHERWISE, **one_less}
    found = {series: value for series, value in said["samples"].items() if series.partition("{")[0] not in MORE_COUNTS}
    assert found == expected


MORE_COUNTS = ("nv_inference_first_response_histogram_ms_count",)


def test_metrics_have_the_same_names_types_and_labels(said: dict[str, Any]) -> None:
    assert said["families"] == {**KEPT["families"], **MORE_FAMILIES}


def test_durations_add_up(said: dict[str, Any]) -> None:
    for row in said["rows"]:
        figures = {name: duration["ns"] for name, duration in row["inference_stats"].items()}
        parts = sum(figures[name] for name in ("queue", "compute_input", "compute_infer", "compute_output"))
        if row["name"] not in ("chain", "twice", "streamed"):  # steps of an ensemble may run side by side
            assert parts <= figures["success"] * 1.01, row
        assert (figures["success"] > 0) == (row["inference_stats"]["success"]["count"] > 0), row
        assert (row["last_inference"] > 0) == (row["execution_count"] > 0), row


def test_a_summary_agrees_with_the_counters(said: dict[str, Any]) -> None:
    page = said["page"]
    for part in ("request", "queue", "compute_input", "compute_infer", "compute_output"):
        labels = 'model="one",version="1"}'
        total = page[f"nv_inference_{part}_summary_us_sum{{{labels}"]
        # Each is cut to whole microseconds, and the clock is read once more.
        assert abs(total - page[f"nv_inference_{part}_duration_us{{{labels}"]) <= 1000, part
        middle = page[f'nv_inference_{part}_summary_us{{model="one",quantile="0.5",version="1"}}']
        assert middle <= page[f'nv_inference_{part}_summary_us{{model="one",quantile="0.999",version="1"}}'] <= total


def test_every_response_of_a_stream_has_its_figures(said: dict[str, Any]) -> None:
    (row,) = [row for row in said["rows"] if row["name"] == "streams"]
    counted = {
        index: {name: duration["count"] for name, duration in figures.items() if duration["count"]}
        for index, figures in row["response_stats"].items()
    }
    assert counted == {
        "0": {"compute_infer": 4, "compute_output": 4, "success": 4, "empty_response": 1},
        "1": {"compute_infer": 3, "compute_output": 3, "success": 2, "fail": 1},
        "2": {"compute_infer": 1, "compute_output": 1, "success": 1, "empty_response": 2},
        "3": {"empty_response": 1},
    }
    series = 'nv_inference_first_response_histogram_ms_bucket{le="+Inf",model="streams",version="1"}'
    assert said["page"][series] == row["inference_stats"]["success"]["count"]


def reached_a_queue(family: list[dict[str, Any]]) -> bool:
    return "QUEUE_START" in family[0]["moments"]


def in_order(moments: list[str]) -> list[str]:
    """Without when answers were sent: on a real server that may be before or after the figures are taken."""
    return [name for name in moments if not name.startswith("HTTP_SEND")]


@pytest.fixture(scope="module")
def pairs(said: dict[str, Any]) -> list[tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    found = [family for family in said["traces"] if reached_a_queue(family)]
    assert len(found) == len(KEPT["traces"])
    return list(zip(KEPT["traces"], found, strict=True))


GONE = {"held"}


def test_traces_are_of_the_same_requests(pairs: list[Any]) -> None:
    for expected, found in pairs:
        for one, other in zip(expected, found, strict=True):
            named = ("id", "model_name", "model_version", "request_id", "parent")
            assert [one.get(name) for name in named] == [other.get(name) for name in named]


def test_traces_have_the_same_moments(pairs: list[Any]) -> None:
    for expected, found in pairs:
        for one, other in zip(expected, found, strict=True):
            if one["model_name"] in GONE and in_order(one["moments"]) != in_order(other["moments"]):
                continue  # one client of this model has gone, and one was refused
            assert in_order(other["moments"]) == in_order(one["moments"]), one
            assert Counter(other["moments"]) == Counter(one["moments"])


def test_traces_have_the_same_tensors(pairs: list[Any]) -> None:
    for expected, found in pairs:
        for one, other in zip(expected, found, strict=True):
            if one["model_name"] not in GONE:
                assert other["tensors"] == one["tensors"]


def test_a_refused_request_has_a_trace_too(said: dict[str, Any]) -> None:
    refused = [family[0]["moments"] for family in said["traces"] if not reached_a_queue(family)]
    assert refused == [["HTTP_RECV_START", "HTTP_RECV_END", "REQUEST_START", "REQUEST_END"]] * REFUSED


SETTINGS_DIFFERENT = {
    "{'trace_level': ['NONE']}": (400, "there is no trace level 'NONE': there are OFF, TIMESTAMPS, TENSORS"),
    "{'trace_rate': 5}": (200, ""),
    "{'trace_rate': '-1'}": (400, "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: -1"),
    "{'trace_rate': '5x'}": (400, "Unable to parse 'trace_rate', got: 5x"),
    "{'log_frequency': '-3'}": (400, "Unable to parse 'log_frequency', value is out of range [ 0, 4294967295 ]"),
    "{'trace_mode': 'opentelemetry'}": (501, "trace mode can not be updated through network protocol"),
    "{'nothing': 1}": (400, "there is no "),
    "b'[]'": (400, "failed to parse the request JSON buffer"),
}


def agrees(expected: dict[str, Any], found: dict[str, Any]) -> bool:
    """Whether ``found`` says what ``expected`` does; an error may say more, and is 400 where the client is to blame."""
    blamed = 400 if expected["status"] == 500 else expected["status"]
    if found["status"] != blamed or blamed == 200:
        return bool(found == expected)
    return bool(found["json"]["error"].startswith(expected["json"]["error"].partition(": ")[0]))


@pytest.mark.parametrize("index", range(len(SETTINGS)))
def test_settings_are_answered_alike(said: dict[str, Any], index: int) -> None:
    path, body = SETTINGS[index]
    expected, found = KEPT["settings"][index], said["settings"][index]
    if repr(body) in SETTINGS_DIFFERENT:
        status, error = SETTINGS_DIFFERENT[repr(body)]
        assert found["status"] == status
        assert found["json"].get("error", "").startswith(error)
        assert not agrees(expected, found)
    else:
        assert agrees(expected, found), f"{path} {body!r}: expected {expected}, found {found}"
