"""What people report of queues and figures: batches of unequal shapes, lost clients, metrics with gaps."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic

import httpx
import pytest
from asking import Answer, Asker, tensor, x
from bug_models import Shared
from model_folders import declared, onnx_identity, parameters, write_identity, x_to_y
from serving import Gate, eventually
from wire_http import Wire, infer_body, request


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(24) as made:
        yield made


@contextmanager
def occupied(shared: Shared, pool: ThreadPoolExecutor, gate: Gate, model: str) -> Iterator[Future[Answer]]:
    """The only instance of ``model`` runs a request until the gate is opened."""
    shape = [1] if model == "held" else [1, 1]
    before = len(gate.batches)
    first = pool.submit(shared.ask.infer, model, x("FP32", [99], shape))
    gate.wait_for_batches(before + 1)
    try:
        yield first
    finally:
        gate.open()
    assert first.result().data() == [99.0]


def pending(shared: Shared, model: str) -> int:
    return int(sample(shared, f'nv_inference_pending_request_count{{model="{model}",version="1"}}'))


def page(shared: Shared, **headers: str) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{shared.server.metrics_port}/metrics", headers=headers, trust_env=False)


def sample(shared: Shared, series: str) -> float:
    """The value of one series; KeyError when the page does not have it."""
    lines = dict(line.rsplit(" ", 1) for line in page(shared).text.splitlines() if not line.startswith("#"))
    return float(lines[series])


# Batches.


def queue_up(shared: Shared, pool: ThreadPoolExecutor, shapes: list[tuple[int, int]]) -> list[Future[Answer]]:
    """Requests to ``held8`` that wait, in this order; each tensor is filled with its position."""
    futures = []
    for position, (rows, width) in enumerate(shapes):
        given = x("FP32", [float(position)] * rows * width, [rows, width])
        futures.append(pool.submit(shared.ask.infer, "held8", given))
        eventually(lambda: pending(shared, "held8") == len(futures), f"{len(futures)} requests wait")
    return futures


@pytest.mark.parametrize(
    ("shapes", "batches"),
    [
        ([(1, 3), (1, 3), (1, 5), (1, 5), (1, 3)], [(2, 3), (2, 5), (1, 3)]),
        ([(5, 2), (5, 2), (5, 2)], [(5, 2), (5, 2), (5, 2)]),
        ([(5, 2), (3, 2), (8, 2), (1, 2)], [(8, 2), (8, 2), (1, 2)]),
    ],
    ids=["unequal-widths", "5+5+5-rows", "full-batches"],
)
def test_requests_share_a_batch_when_their_shapes_agree_and_their_rows_fit(
    shared: Shared,
    ask: Asker,
    pool: ThreadPoolExecutor,
    shapes: list[tuple[int, int]],
    batches: list[tuple[int, int]],
) -> None:
    gate = shared.gate("held8")
    gate.close()
    with occupied(shared, pool, gate, "held8"):
        before = len(gate.batches)
        futures = queue_up(shared, pool, shapes)
        gate.open()
        answers = [future.result() for future in futures]
    for position, (answer, (rows, width)) in enumerate(zip(answers, shapes, strict=True)):
        assert answer.output()["shape"] == [rows, width]
        assert answer.data() == [float(position)] * rows * width
    ran = [(len(batch), len(batch[0])) for batch in gate.batches[before:]]
    assert ran == batches


def test_a_request_that_runs_longer_than_the_queue_delay_is_not_ended_by_it(
    shared: Shared, ask: Asker, pool: ThreadPoolExecutor
) -> None:
    gate = shared.gate("held8")  # its queue delay is 200 ms
    gate.close()
    with occupied(shared, pool, gate, "held8") as slow:
        started = monotonic()
        while monotonic() < started + 0.5:  # meanwhile, others are answered
            assert ask.infer("fp32", x("FP32", [1])).data() == [1.0]
        assert not slow.done()


def test_a_ragged_batch_is_right_for_every_request_or_refused_at_load(
    shared: Shared, ask: Asker, pool: ThreadPoolExecutor
) -> None:
    config = (
        f'backend: "onnxruntime"\nmax_batch_size: 8\ndynamic_batching {{ }}\n'
        f"{declared('input', 'X', more='allow_ragged_batch: true')}{declared('output', 'Y')}"
    )
    answer = shared.offer("ragged_onnx", config, model_onnx=onnx_identity(["N"]))
    if answer.status != 200:
        answer.refused("ragged")
        return
    widths = [3, 3, 5, 5, 3]
    given = [x("FP32", [float(width)] * width, [1, width]) for width in widths]
    answers = list(pool.map(lambda one: ask.infer("ragged_onnx", one), given))
    assert [one.data() for one in answers] == [[float(width)] * width for width in widths]


# Clients that give up.


def reset(wire: Wire) -> None:
    """Leave as a process does that is killed while its answer is on the way."""
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.socket.close()


def close(wire: Wire) -> None:
    """Leave as a client does whose patience is at its end."""
    wire.socket.close()


@pytest.mark.parametrize("leave", [reset, close])
def test_requests_of_clients_that_left_are_never_run(
    shared: Shared, ask: Asker, pool: ThreadPoolExecutor, leave: Callable[[Wire], None]
) -> None:
    gate = shared.gate("held")
    gate.close()
    cancelled = 'nv_inference_request_failure{model="held",reason="CANCELED",version="1"}'
    before, executions = sample(shared, cancelled), len(gate.batches)
    with occupied(shared, pool, gate, "held"):
        leaving = [Wire(shared.server.port) for _ in range(20)]
        for wire in leaving:
            wire.send(request("/v2/models/held/infer", infer_body([13])))
        eventually(lambda: pending(shared, "held") == 20, "20 requests wait")
        for wire in leaving:
            leave(wire)
        eventually(lambda: pending(shared, "held") == 0, "the requests of those who left are gone", seconds=3)
        staying = pool.submit(ask.infer, "held", x("FP32", [1]))
        eventually(lambda: pending(shared, "held") == 1, "the client who stays waits")
        gate.open()
        assert staying.result().data() == [1.0]
    assert gate.batches[executions:] == [[99.0], [1.0]]
    assert sample(shared, cancelled) == before + 20


def test_a_client_that_leaves_while_its_request_runs_disturbs_nobody(
    shared: Shared, ask: Asker, pool: ThreadPoolExecutor
) -> None:
    gate = shared.gate("held")
    gate.close()
    before = len(gate.batches)
    with Wire(shared.server.port) as leaving:
        leaving.send(request("/v2/models/held/infer", infer_body([13])))
        gate.wait_for_batches(before + 1)
    staying = pool.submit(ask.infer, "held", x("FP32", [1]))
    eventually(lambda: pending(shared, "held") == 1, "the client who stays waits")
    gate.open()
    assert staying.result().data() == [1.0]


# Figures.

FAMILIES = {
    "nv_inference_request_success": "counter",
    "nv_inference_request_failure": "counter",
    "nv_inference_count": "counter",
    "nv_inference_exec_count": "counter",
    "nv_inference_request_duration_us": "counter",
    "nv_inference_queue_duration_us": "counter",
    "nv_inference_compute_input_duration_us": "counter",
    "nv_inference_compute_infer_duration_us": "counter",
    "nv_inference_compute_output_duration_us": "counter",
    "nv_inference_pending_request_count": "gauge",
}


def test_a_loaded_model_has_every_figure_before_its_first_request(shared: Shared, ask: Asker) -> None:
    write_identity(shared.repository, "unasked")
    assert ask.load("unasked").status == 200
    labels = '{model="unasked",version="1"}'
    for family in FAMILIES:
        if family == "nv_inference_request_failure":
            for reason in ("REJECTED", "CANCELED", "BACKEND", "OTHER"):
                assert sample(shared, f'{family}{{model="unasked",reason="{reason}",version="1"}}') == 0
        else:
            assert sample(shared, f"{family}{labels}") == 0


def test_every_family_is_declared_once_with_its_type(shared: Shared, ask: Asker) -> None:
    lines = page(shared).text.splitlines()
    declared_types = [line.split(" ")[2:4] for line in lines if line.startswith("# TYPE ")]
    assert len(declared_types) == len({family for family, _ in declared_types})
    assert FAMILIES.items() <= dict(declared_types).items()
    assert not any(family.endswith("_total") for family, _ in declared_types)
    order = [re.split("[{ ]", line)[0] for line in lines if not line.startswith("#")]
    assert order == sorted(order, key=[family for family, _ in declared_types].index), "families are interleaved"


def test_counters_count_and_fall_only_when_the_model_is_unloaded(shared: Shared, ask: Asker) -> None:
    series = 'nv_inference_count{model="counted",version="1"}'
    folder = write_identity(shared.repository, "counted", more="max_batch_size: 4")
    assert ask.load("counted").status == 200
    assert ask.infer("counted", x("FP32", [1, 2, 3], [3, 1])).status == 200
    ask.infer("counted", x("FP64", [1], [1, 1])).refused()
    assert sample(shared, series) == 3
    assert sample(shared, 'nv_inference_request_success{model="counted",version="1"}') == 1
    (folder / "labels.txt").write_text("a change")
    assert ask.load("counted").status == 200
    assert sample(shared, series) == 3, "a reload is no reset"
    assert ask.unload("counted").status == 200
    with pytest.raises(KeyError):
        sample(shared, series)
    assert ask.load("counted").status == 200
    assert sample(shared, series) == 0


def test_labels_are_escaped_and_versions_kept_apart(shared: Shared, ask: Asker) -> None:
    tags = r'metric_tags { key: "note" value: "back\\slash \"quoted\"\nsecond line" }'
    name = 'say "hi"'
    write_identity(shared.repository, name, more=f"version_policy {{ all {{ }} }} {tags}")
    (shared.repository / name / "2").mkdir()
    assert ask.load(name).status == 200
    assert ask.infer(name, x("FP32", [1]), version="2").status == 200
    note = r'_note="back\\slash \"quoted\"\nsecond line"'
    for version, count in (("1", 0), ("2", 1)):
        assert sample(shared, rf'nv_inference_count{{{note},model="say \"hi\"",version="{version}"}}') == count


@pytest.mark.parametrize("accept", ["*/*", "application/openmetrics-text; version=1.0.0", "application/json"])
def test_the_page_is_prometheus_text_whatever_is_accepted(shared: Shared, ask: Asker, accept: str) -> None:
    answer = page(shared, Accept=accept)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert answer.text.endswith("\n")


def test_a_full_queue_and_an_expired_wait_are_refused_and_counted(
    shared: Shared, ask: Asker, pool: ThreadPoolExecutor
) -> None:
    gate = Gate(shared.gates / "strict")
    policy = (
        "max_batch_size: 1 dynamic_batching { default_queue_policy { max_queue_size: 1 "
        "timeout_action: REJECT default_timeout_microseconds: 100000 } }"
    )
    config = f'backend: "gated"\n{x_to_y()}{policy}\n{gate.parameters()}{parameters(LANE="thread")}'
    assert shared.offer("strict", config).status == 200
    given = tensor("X", "FP32", [1, 1], [99])
    running = pool.submit(ask.infer, "strict", given)
    gate.wait_for_batches(1)
    waiting = pool.submit(ask.infer, "strict", given)
    eventually(lambda: pending(shared, "strict") == 1 or waiting.done(), "one request waits")
    if not waiting.done():
        ask.infer("strict", given).refused("Exceeds maximum queue size", status=503)
    waiting.result().refused("Request timeout expired", status=503)
    gate.open()
    assert running.result().data() == [99.0]
    assert sample(shared, 'nv_inference_request_failure{model="strict",reason="REJECTED",version="1"}') == 2
    assert sample(shared, 'nv_inference_request_success{model="strict",version="1"}') == 1
