"""The metrics page: Triton's names, true figures, lines that a scraper can read."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Awaitable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from bident.doors.metrics import MetricsPage
from bident.engine.control_mode import ControlMode
from bident.engine.engine import Engine
from bident.engine.lifecycle import Lifecycle
from bident.engine.loader import Loader
from bident.model.repository import Repository
from tests.unit.engine.engine_fakes import (
    BATCHING,
    THREAD,
    Asked,
    Echo,
    FakeBackend,
    FakeBackends,
    NoModels,
    answered,
    ask,
    clients_of,
    on_loop,
    tensor,
    until,
    write_model,
)

PER_MODEL = {
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
    "nv_model_load_duration_secs": "gauge",
}
OF_THE_HOST = {
    "nv_cpu_utilization": "gauge",
    "nv_cpu_memory_total_bytes": "gauge",
    "nv_cpu_memory_used_bytes": "gauge",
}
PINNED = {"nv_pinned_memory_pool_total_bytes": "gauge", "nv_pinned_memory_pool_used_bytes": "gauge"}

SAMPLE = re.compile(r'([a-zA-Z_:][\w:]*)(?:\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*",?)+)\})? (\S+)')
LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')


class Page:
    """A strict reading of the exposition format."""

    def __init__(self, text: str) -> None:
        assert text.endswith("\n")
        self.kinds: dict[str, str] = {}
        self.helped: list[str] = []
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for line in text.splitlines():
            if line.startswith("# HELP "):
                self.helped.append(line.split(" ", 3)[2])
            elif line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                assert name not in self.kinds, "two TYPE lines for a family"
                self.kinds[name] = kind
            else:
                self._sample(line)

    def _sample(self, line: str) -> None:
        match = SAMPLE.fullmatch(line)
        assert match, line
        pairs = LABEL.findall(match[2] or "")
        assert len({name for name, _ in pairs}) == len(pairs), f"a label twice: {line}"
        assert match[1] in self.kinds or self._is_part(match[1]), "a sample before its TYPE line"
        key = (match[1], frozenset(pairs))
        assert key not in self.samples, f"a sample twice: {line}"
        self.samples[key] = float(match[3])

    def _is_part(self, name: str) -> bool:
        """Whether a sample so called belongs to a summary or a histogram."""
        family = name.rpartition("_")[0]
        return name.endswith(("_count", "_sum", "_bucket")) and self.kinds.get(family) in ("summary", "histogram")

    def value(self, family: str, **labels: str) -> float:
        return self.samples[family, frozenset({"version": "1", **labels}.items())]

    def labels(self, family: str) -> list[dict[str, str]]:
        return [dict(pairs) for name, pairs in self.samples if name == family]


class Recorded:
    """In place of an Exchange: its answer, or what will make one."""

    def __init__(self) -> None:
        self.answer: tuple[int, bytes] = (0, b"")
        self.content_type = b""
        self.later: Awaitable[None] | None = None

    def respond(self, status: int, body: Sequence[bytes], content_type: bytes) -> None:
        self.answer = (status, b"".join(body))
        self.content_type = content_type

    def respond_later(self, answering: Awaitable[None]) -> None:
        self.later = answering


class Site:
    def __init__(self, root: Path) -> None:
        self.models = root / "models"
        self.models.mkdir()
        self.backend = FakeBackend(lambda files, config: Echo())
        loader = Loader(FakeBackends(self.backend))  # type: ignore[arg-type]
        lifecycle = Lifecycle(loader, asyncio.get_running_loop(), clients_of(9))
        lifecycle.models = NoModels()
        self.engine = Engine(Repository([self.models]), lifecycle, ControlMode("explicit"), root / "overlays")

    def page(self, *, host: bool = False) -> Page:
        return Page(MetricsPage(self.engine, host=host).render())

    async def infer(self, *requests: Asked) -> None:
        for request in requests:
            self.engine.infer(request)
        await answered(*requests)


@on_loop
async def test_a_page_without_models_has_every_family_once(tmp_path: Path) -> None:
    page = Site(tmp_path).page(host=True)

    assert page.kinds == PER_MODEL | PINNED | OF_THE_HOST
    assert page.helped == list(page.kinds)
    assert {name for name, _ in page.samples} == set(PINNED) | set(OF_THE_HOST)
    assert 0 <= page.samples["nv_cpu_utilization", frozenset()] <= 1
    assert (
        0
        < page.samples["nv_cpu_memory_used_bytes", frozenset()]
        < page.samples["nv_cpu_memory_total_bytes", frozenset()]
    )


@on_loop
async def test_the_host_can_be_left_out(tmp_path: Path) -> None:
    assert set(Site(tmp_path).page(host=False).kinds) == set(PER_MODEL) | set(PINNED)


@on_loop
async def test_every_series_of_a_model_is_there_at_zero_once_it_is_loaded_and_gone_with_it(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_model(site.models, "m")
    await site.engine.start(None)

    page = site.page()
    for family in set(PER_MODEL) - {"nv_inference_request_failure", "nv_model_load_duration_secs"}:
        assert page.value(family, model="m") == 0
    reasons = {labels["reason"]: labels for labels in page.labels("nv_inference_request_failure")}
    assert set(reasons) == {"REJECTED", "CANCELED", "BACKEND", "OTHER"}
    assert all(page.value("nv_inference_request_failure", model="m", reason=reason) == 0 for reason in reasons)
    assert page.value("nv_model_load_duration_secs", model="m") > 0

    await site.engine.unload("m")
    assert site.page().labels("nv_inference_count") == []


@on_loop
async def test_figures_are_those_of_the_statistics_in_microseconds(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_model(site.models, "m", BATCHING + THREAD)
    await site.engine.start(None)
    bad = Asked(tensor("X", [1e39, 0], (1, 2)))
    await site.infer(ask(1, rows=3), ask(2), bad)

    page, stats = site.page(), site.engine.model("m", "").stats
    assert page.value("nv_inference_request_success", model="m") == 2
    assert page.value("nv_inference_request_failure", model="m", reason="OTHER") == 1
    assert page.value("nv_inference_count", model="m") == 4
    assert page.value("nv_inference_exec_count", model="m") == 1
    for family, duration in (
        ("request", stats.success),
        ("queue", stats.queue),
        ("compute_input", stats.compute_input),
        ("compute_infer", stats.compute_infer),
        ("compute_output", stats.compute_output),
    ):
        assert page.value(f"nv_inference_{family}_duration_us", model="m") == duration.ns // 1000
    assert page.value("nv_inference_request_duration_us", model="m") > 0


@on_loop
async def test_counters_only_rise_across_a_reload(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_model(site.models, "m")
    await site.engine.start(None)
    await site.infer(ask(1))
    before = site.page()

    write_model(site.models, "m", BATCHING + THREAD)
    await site.engine.load("m")
    await site.infer(ask(1))

    after = site.page()
    assert after.value("nv_inference_count", model="m") == 2
    for (family, labels), value in before.samples.items():
        if before.kinds[family] == "counter":
            assert after.samples[family, labels] >= value


@on_loop
async def test_what_waits_is_pending_and_what_runs_is_not(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_model(site.models, "m", BATCHING + THREAD)
    await site.engine.start(None)
    instance = site.backend.made[0]
    assert isinstance(instance, Echo)
    instance.hold()
    requests = [ask(1), ask(2), ask(3)]
    site.engine.infer(requests[0])
    await until(lambda: instance.running, "an execution")
    for request in requests[1:]:
        site.engine.infer(request)

    assert site.page().value("nv_inference_pending_request_count", model="m") == 2
    instance.release()
    await answered(*requests)
    assert site.page().value("nv_inference_pending_request_count", model="m") == 0


@on_loop
async def test_versions_have_their_own_series(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_model(site.models, "m", BATCHING + " version_policy { all { } }", versions=(1, 2))
    await site.engine.start(None)
    await site.infer(ask(1, version="1"), ask(1), ask(1))

    page = site.page()

    assert page.value("nv_inference_count", model="m") == 1
    assert page.value("nv_inference_count", model="m", version="2") == 2


@pytest.mark.skipif(sys.platform == "win32", reason="no folder can have such a name there")
@on_loop
async def test_tags_and_odd_names_give_lines_that_a_scraper_can_read(tmp_path: Path) -> None:
    site = Site(tmp_path)
    tags = 'metric_tags { key: "my-team.x" value: "a\\"b\\\\c\\nd" } metric_tags { key: "zone" value: "\u00e9" }'
    write_model(site.models, 'a"b', BATCHING + tags)
    await site.engine.start(None)

    page = site.page()

    assert page.labels("nv_inference_count") == [
        {"model": 'a\\"b', "version": "1", "_my_team_x": 'a\\"b\\\\c\\nd', "_zone": "\u00e9"}
    ]


@pytest.mark.parametrize("failing", [True, False])
@on_loop
async def test_failures_are_counted_by_reason_and_never_as_success(tmp_path: Path, failing: bool) -> None:
    def fail(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        raise ValueError("no")

    site = Site(tmp_path)
    site.backend.make = lambda files, config: Echo(fail if failing else None)
    write_model(site.models, "m")
    await site.engine.start(None)
    await site.infer(ask(1), ask(2))

    page = site.page()

    expected = (0, 2, 0, 1) if failing else (2, 0, 2, 1)
    assert (
        page.value("nv_inference_request_success", model="m"),
        page.value("nv_inference_request_failure", model="m", reason="BACKEND"),
        page.value("nv_inference_count", model="m"),
        page.value("nv_inference_exec_count", model="m"),
    ) == expected


def test_other_paths_are_an_empty_page(tmp_path: Path) -> None:
    @on_loop
    async def serve() -> None:
        routes = MetricsPage(Site(tmp_path).engine, host=False).routes()
        for path, starts in ((b"/metrics", b"# HELP nv_inference_request_success"), (b"/", b""), (b"/x/y", b"")):
            exchange = Recorded()
            resource, _ = routes.find(path, b"GET")  # type: ignore[misc]
            resource.serve(exchange)  # type: ignore[arg-type]
            status, body = exchange.answer
            assert (status, exchange.content_type) == (200, b"text/plain; charset=utf-8")
            assert body.startswith(starts)
            assert bool(body) == bool(starts)
        assert routes.find(b"/metrics", b"POST").status == 405  # type: ignore[union-attr]

    serve()


@on_loop
async def test_what_models_measure_themselves_ends_the_page(tmp_path: Path) -> None:
    site = Site(tmp_path)
    own = ["# HELP words counted\n", "# TYPE words counter\n", "words 3\n"]
    text = MetricsPage(site.engine, lambda: own, host=False).render()
    assert text.endswith("".join(own))
    assert Page(text).samples["words", frozenset()] == 3


@pytest.mark.parametrize(("count", "aside"), [(10, False), (40_000, True)])
@on_loop
async def test_a_long_page_is_written_by_a_thread(tmp_path: Path, count: int, aside: bool) -> None:
    threads = set()

    def own() -> Iterator[str]:
        for number in range(count):
            yield f"words_{number} 1\n"
        threads.add(threading.get_ident())

    exchange = Recorded()
    resource, _ = MetricsPage(Site(tmp_path).engine, own, host=False).routes().find(b"/metrics", b"GET")  # type: ignore[misc]
    resource.serve(exchange)  # type: ignore[arg-type]
    assert (exchange.later is not None) == aside
    if exchange.later is not None:
        await exchange.later
    assert (threads != {threading.get_ident()}) == aside
    status, body = exchange.answer
    assert status == 200
    assert re.findall(rb"words_(\d+) 1\n", body) == [b"%d" % number for number in range(count)]


@on_loop
async def test_what_cannot_be_written_does_not_cost_others_the_page(tmp_path: Path) -> None:
    exchange = Recorded()
    own = ["# HELP m \ud800\n", "# TYPE m gauge\n", "m 1\n"]
    routes = MetricsPage(Site(tmp_path).engine, lambda: own, host=False).routes()
    resource, _ = routes.find(b"/metrics", b"GET")  # type: ignore[misc]
    resource.serve(exchange)  # type: ignore[arg-type]
    assert exchange.answer[1].endswith(b"# HELP m ?\n# TYPE m gauge\nm 1\n")
