"""``/metrics`` of the text server: Prometheus text format 0.0.4, in seconds, bytes and tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import psutil
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from bident import __version__
from bident.observe.metrics import CONTENT_TYPE, Family, Sample, histogram_samples, render, render_samples
from bident.text.engine import TextEngine
from bident.text.figures import KINDS, OUTCOMES, ModelFigures
from bident.text.runner.residency import Running
from bident.text.runner.resident import Turnover

PATH = "/metrics"
ModelT = TypeVar("ModelT")

_INFO = Family("bident_text_info", "gauge", "Always 1; the label says which version of Bident this is")
_REQUESTS = Family(
    "bident_text_requests_total",
    "counter",
    "Requests that have ended, by kind (answer, embed, rerank) and outcome: success, refused (the request was wrong), "
    "unavailable (no room), failed (the model's fault), abandoned (the client went away). Requests for models that "
    "there are not have an empty model",
)
_UNDER_WAY = Family("bident_text_requests_under_way", "gauge", "Requests received and not yet answered to their end")
_WAITING = Family("bident_text_requests_waiting", "gauge", "Requests in line for a slot, or for their model to load")
_SECONDS = Family(
    "bident_text_request_seconds", "histogram", "Seconds from receiving a request to the end of its answer, by kind"
)
_FIRST = Family(
    "bident_text_first_token_seconds", "histogram", "Seconds from receiving a request to the first piece of its answer"
)
_MODELS_LOADED = Family("bident_text_models_loaded", "gauge", "Models in memory")


def _counter(name: str, meaning: str) -> Family:
    return Family(f"bident_text_{name}_total", "counter", meaning)


def _gauge(name: str, meaning: str) -> Family:
    return Family(f"bident_text_model_{name}", "gauge", meaning)


_SUMS: tuple[tuple[Family, Callable[[ModelFigures], float]], ...] = (
    (_counter("prompt_tokens", "Tokens of prompts, also those known from before"), lambda of: of.prompt_tokens),
    (
        _counter("cached_tokens", "Tokens of prompts that were known from an earlier request"),
        lambda of: of.cached_tokens,
    ),
    (
        _counter("truncated_tokens", "Tokens of prompts left out because they did not fit"),
        lambda of: of.truncated_tokens,
    ),
    (_counter("answer_tokens", "Tokens of answers"), lambda of: of.answer_tokens),
    (_counter("prompt_seconds", "Seconds spent on reading prompts"), lambda of: of.prompt_seconds),
    (_counter("answer_seconds", "Seconds spent on writing answers, counted for each"), lambda of: of.answer_seconds),
    (_counter("wait_seconds", "Seconds requests waited for a slot and a loaded model"), lambda of: of.wait_seconds),
)
_TURNOVER: tuple[tuple[Family, Callable[[Turnover], float]], ...] = (
    (_counter("model_loads", "Times the model was loaded"), lambda of: of.loads),
    (_counter("model_load_seconds", "Seconds its loads took"), lambda of: of.load_seconds),
    (_counter("model_crashes", "Times its process ended by itself or could not load it"), lambda of: of.crashes),
)
_RUNNING: tuple[tuple[Family, Callable[[Running], float]], ...] = (
    (_gauge("memory_bytes", "Bytes of memory that the loaded model's process uses"), lambda of: of.size),
    (_gauge("context_tokens", "Tokens that a prompt and its answer may have together"), lambda of: of.context_length),
    (_gauge("slots", "Requests that the loaded model answers at the same time"), lambda of: of.slots),
    (_gauge("slots_used", "Requests that it is answering"), lambda of: of.active),
)
_MEMORY = Family("process_resident_memory_bytes", "gauge", "Bytes of memory of the server itself, without its models")
_PROCESSOR = Family("process_cpu_seconds_total", "counter", "Seconds of processor time of the server itself")
_STARTED = Family("process_start_time_seconds", "gauge", "When the server was started, in seconds since 1970")

FAMILIES = (
    _INFO,
    _REQUESTS,
    _UNDER_WAY,
    _WAITING,
    _SECONDS,
    _FIRST,
    *(family for family, _ in _SUMS),
    *(family for family, _ in _TURNOVER),
    _MODELS_LOADED,
    *(family for family, _ in _RUNNING),
    _MEMORY,
    _PROCESSOR,
    _STARTED,
)
"""Everything the page shows, in its order."""


class Metrics:
    """Answers ``/metrics`` with the figures of ``engine``, and leaves the rest to ``app``."""

    def __init__(self, app: ASGIApp, engine: TextEngine) -> None:
        self._app = app
        self._engine = engine
        self._process = psutil.Process()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != PATH or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        headers = {"content-type": CONTENT_TYPE.decode()}
        await Response(self.render().encode("utf-8", "replace"), headers=headers)(scope, receive, send)

    def render(self) -> str:
        """The page."""
        residency = self._engine.residency
        running = residency.running()
        parts = [
            render(_INFO, [({"version": __version__}, 1)]),
            *self._requests(),
            *(_each(family, value, residency.turnover) for family, value in _TURNOVER),
            render(_MODELS_LOADED, [({}, len(running))]),
        ]
        loaded = {each.model.name.short: each for each in running}
        parts += [_each(family, value, loaded) for family, value in _RUNNING]
        times = self._process.cpu_times()
        parts.append(render(_MEMORY, [({}, int(self._process.memory_info().rss))]))
        parts.append(render(_PROCESSOR, [({}, times.user + times.system)]))
        parts.append(render(_STARTED, [({}, self._process.create_time())]))
        return "".join(parts)

    def _requests(self) -> Iterator[str]:
        models = self._engine.figures.models
        named = {name: figures for name, figures in models.items() if name}
        yield render(_REQUESTS, _ends(models))
        yield _each(_UNDER_WAY, lambda of: of.under_way, named)
        waiting = self._engine.residency.waiting()
        yield render(_WAITING, (({"model": name}, waiting[name]) for name in sorted({*named, *waiting})))
        yield render_samples(_SECONDS, _durations(named))
        yield render_samples(_FIRST, _firsts(named))
        for family, value in _SUMS:
            yield _each(family, value, named)


def _each(family: Family, value: Callable[[ModelT], float], models: Mapping[str, ModelT]) -> str:
    return render(family, (({"model": name}, value(of)) for name, of in models.items()))


def _ends(models: Mapping[str, ModelFigures]) -> Iterator[tuple[dict[str, str], float]]:
    """Every outcome of what a model has been asked for: a rate needs the 0 before the 1."""
    for name, figures in models.items():
        for kind in sorted({kind for kind, _ in figures.ends}):
            for outcome in OUTCOMES:
                yield {"model": name, "kind": kind, "outcome": outcome}, figures.ends[kind, outcome]


def _firsts(models: Mapping[str, ModelFigures]) -> Iterator[Sample]:
    for name, figures in models.items():
        if figures.first_seconds.cumulative[-1]:
            yield from histogram_samples({"model": name}, figures.first_seconds)


def _durations(models: Mapping[str, ModelFigures]) -> Iterator[Sample]:
    for name, figures in models.items():
        for kind in KINDS:
            if figures.seconds[kind].cumulative[-1]:
                yield from histogram_samples({"model": name, "kind": kind}, figures.seconds[kind])
