"""Which requests are traced, and where their traces go.

Follows Triton's tracer (``server/src/tracer.cc``) in what is sampled and when settings take effect: a change
begins a new count. Traces whose requests are under way keep to the setting they were sampled with.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from bident.errors import invalid_arg
from bident.observe.trace_files import TraceFiles, obstacle
from bident.observe.trace_settings import Picks, TraceSetting, TraceStart
from bident.wire.infer import InferRequest
from bident.wire.trace import Trace
from bident.wire.trace_context import TraceContext, propagated

logger = logging.getLogger("bident.trace")

_ALL = ""
"""The name under which the setting for all models is kept."""


class Outlet(Protocol):
    """Where the traces go that one sampler picks."""

    def enter(self, client: TraceContext | None) -> TraceContext | None:
        """The span of a request as its door sees it; ``client`` where traces are no spans."""

    def place(self, above: TraceContext | None) -> TraceContext | None:
        """The span of a trace below ``above``; ``above`` where traces are no spans."""

    def put(self, root: Trace, *, last: bool) -> None:
        """Take a complete trace; ``last``: it completes those that the setting asks for."""

    def finish(self) -> None:
        """Nothing more comes."""


class Sink(Protocol):
    """Where all traces go."""

    def outlet(self, setting: TraceSetting) -> Outlet:
        """One for the traces picked by ``setting``."""

    def close(self, seconds: float) -> None:
        """Have everything written or sent, for at most ``seconds``. Blocks."""


def _everything(_model: str) -> bool:
    return True


class Tracing:
    """The tracer of one engine. Lives on the event loop."""

    is_on: bool
    """Whether any request may be traced: all that a door looks at while none is."""

    def __init__(self, start: TraceStart = TraceStart()) -> None:  # noqa: B008 - it is frozen
        """``start``: what the command line says. Raises UNAVAILABLE if the package for its mode is not installed."""
        self.is_served: Callable[[str], bool] = _everything
        """Whether a model answers requests; others have no settings."""
        self._start = start
        self._sink = _sink(start)
        self._number = itertools.count(1).__next__
        self._own: dict[str, dict[str, Any]] = {_ALL: {}}
        """What has been set, by model and attribute."""
        self._samplers: dict[str, Sampler] = {}
        self._sample({_ALL: start.setting})
        if start.setting.level and (why := start.problem(start.setting)):
            logger.warning("--trace-config: nothing is traced: %s", why)
        elif start.file and (why := obstacle(start.file)):
            logger.warning("traces will not be written to %s: %s", start.file, why)
        if start.spans is not None and not start.setting.level:
            logger.warning(
                "--trace-config mode=opentelemetry: nothing is traced without --trace-config level=TIMESTAMPS"
            )

    def begin(self, request: InferRequest, headers: Mapping[bytes, bytes]) -> Trace | None:
        """A trace for ``request`` that has just been read, if it is one of those to be traced.

        ``headers``: as the client sent them, names in lower case.
        """
        sampler = self._samplers.get(request.model_name) or self._samplers[_ALL]
        makes_spans = self._start.spans is not None
        # A file has as many traces as are asked for: where the client stands matters only for those.
        client = propagated(headers) if makes_spans else None
        if not sampler.takes(is_wanted=client is not None):
            return None
        level = sampler.setting.level
        return Trace(
            sampler,
            timestamps=makes_spans or "TIMESTAMPS" in level,
            tensors="TENSORS" in level,
            above=sampler.enter(client if makes_spans else propagated(headers)),
        )

    def settings(self, model: str) -> dict[str, Any]:
        """What holds for ``model`` ("": for all), as the protocol has it. Raises INVALID_ARG for an unknown one."""
        self._check(model)
        sampler = self._samplers.get(model) or self._samplers[_ALL]
        return self._start.described(sampler.now)

    def update(self, model: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Change what holds for ``model`` ("": for all) as a client asks; None clears what was set.

        Returns what holds then. Raises ServeError, having changed nothing.
        """
        self._check(model)
        values = self._start.read_changes(changes)
        if values:
            self._change(model, values)
        return self.settings(model)

    def close(self, seconds: float) -> None:
        """Have every complete trace written or sent, for at most ``seconds``. Blocks."""
        self.is_on = False
        for sampler in self._samplers.values():
            sampler.retire()
        self._sink.close(seconds)

    def _check(self, model: str) -> None:
        if model and not self.is_served(model):
            raise invalid_arg(f"Request for unknown model : {model}")

    def _change(self, model: str, values: Mapping[str, Any]) -> None:
        own = {name: self._remembered(name) for name in self._own}
        own[model] = {
            attribute: value for attribute, value in {**own.get(model, {}), **values}.items() if value is not None
        }
        changed = self._settings_of(own, [model] if model else list(own))
        for name, setting in changed.items():
            if setting.level and (why := self._start.problem(setting)):
                whose = f" (model '{name}')" if name else ""
                raise invalid_arg(f"Attempting to set invalid trace setting :{why}{whose}")
        if model and not own[model]:  # it follows what holds for all from now on
            del own[model], changed[model]
            if model in self._samplers:
                self._samplers.pop(model).retire()
        self._own = own
        self._sample(changed)

    def _settings_of(self, own: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> dict[str, TraceSetting]:
        """What holds for ``names`` if ``own`` is what has been set."""
        for_all = self._start.setting.with_changes(own[_ALL]) if _ALL in names else self._samplers[_ALL].now
        return {name: for_all.with_changes(own[name]) if name else for_all for name in names}

    def _remembered(self, name: str) -> dict[str, Any]:
        """What has been set for ``name``, with as many traces to go as there are left."""
        own = dict(self._own[name])
        if "count" in own:
            own["count"] = self._samplers[name].now.count
        return own

    def _sample(self, settings: Mapping[str, TraceSetting]) -> None:
        """Begin to sample by ``settings``, where they are not the ones that hold."""
        for name, setting in settings.items():
            before = self._samplers.get(name)
            if before is not None:
                before.retire()
            is_valid = bool(setting.level) and not self._start.problem(setting)
            self._samplers[name] = Sampler(setting, self._sink.outlet(setting), self._number, is_on=is_valid)
        self.is_on = any(sampler.is_on for sampler in self._samplers.values())


class Sampler:
    """Picks the requests that one setting asks for, and takes their traces (see ``wire.trace.Recorder``)."""

    def __init__(self, setting: TraceSetting, outlet: Outlet, number: Callable[[], int], *, is_on: bool) -> None:
        self.setting = setting
        self.is_on = is_on
        self.number = number
        self.enter = outlet.enter
        self.place = outlet.place
        self._outlet = outlet
        self._picks = Picks(setting)
        self._open = 0
        self._is_replaced = False

    @property
    def now(self) -> TraceSetting:
        """The setting, with as many traces to go as there are left."""
        return replace(self.setting, count=self._picks.left)

    def takes(self, *, is_wanted: bool) -> bool:
        """Whether the request that has come is one to be traced; ``is_wanted``: whatever rate and count say."""
        if not self.is_on or not (self._picks.takes_next() or is_wanted):
            return False
        self._open += 1
        return True

    def complete(self, root: Trace) -> None:
        """Let a trace go that has come to its end."""
        self._open -= 1
        self._outlet.put(root, last=not self._picks.left and not self._open)
        self._end_if_over()

    def retire(self) -> None:
        """Another setting holds from now on; what is under way still comes here."""
        self._is_replaced = True
        self.is_on = False
        self._end_if_over()

    def _end_if_over(self) -> None:
        if self._is_replaced and not self._open:
            self._outlet.finish()


def _sink(start: TraceStart) -> Sink:
    if start.spans is None:
        return TraceFiles(start.file)
    from bident.observe.span_export import SpanExport
    from bident.observe.trace_spans import TraceSpans

    return TraceSpans(SpanExport(start.spans, "bident-tensor"))
