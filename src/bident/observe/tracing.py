"""Which requests are traced, and where their traces go.

Follows Triton's tracer (``server/src/tracer.cc``) in what is sampled and when settings take effect: a change begins a
new count. Traces whose requests are under way keep to the setting they were sampled with. A sampler's recorder is all
that traces know of where they go: another exporter is another recorder.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from bident.errors import invalid_arg
from bident.observe.trace_files import Spool, TraceFiles, obstacle
from bident.observe.trace_settings import TraceSetting, TraceStart, described, problem, read_changes
from bident.wire.infer import InferRequest
from bident.wire.trace import Trace

logger = logging.getLogger("bident.trace")

_ALL = ""
"""The name under which the setting for all models is kept."""
_TRACEPARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_LONGEST_STATE = 512


def _everything(_model: str) -> bool:
    return True


class Tracing:
    """The tracer of one engine. Lives on the event loop."""

    is_on: bool
    """Whether any request may be traced: all that a door looks at while none is."""

    def __init__(self, start: TraceStart = TraceStart()) -> None:  # noqa: B008 - it is frozen
        """``start``: what the command line says."""
        self.is_served: Callable[[str], bool] = _everything
        """Whether a model answers requests; others have no settings."""
        self._start = start
        self._files = TraceFiles(start.file)
        self._number = itertools.count(1).__next__
        self._own: dict[str, dict[str, Any]] = {_ALL: {}}
        """What has been set, by model and attribute."""
        self._samplers: dict[str, Sampler] = {}
        self._sample({_ALL: start.setting})
        if start.setting.level and (why := problem(start.setting, start.file)):
            logger.warning("--trace-config: nothing is traced: %s", why)
        elif start.file and (why := obstacle(start.file)):
            logger.warning("traces will not be written to %s: %s", start.file, why)

    def begin(self, request: InferRequest, headers: Mapping[bytes, bytes]) -> Trace | None:
        """A trace for ``request`` that has just been read, if it is one of those to be traced.

        ``headers``: as the client sent them, names in lower case.
        """
        sampler = self._samplers.get(request.model_name) or self._samplers[_ALL]
        if not sampler.takes_next():
            return None
        level = sampler.setting.level
        return Trace(sampler, timestamps="TIMESTAMPS" in level, tensors="TENSORS" in level, context=propagated(headers))

    def settings(self, model: str) -> dict[str, Any]:
        """What holds for ``model`` ("": for all), as the protocol has it. Raises INVALID_ARG for an unknown one."""
        self._check(model)
        sampler = self._samplers.get(model) or self._samplers[_ALL]
        return described(sampler.now, self._start.file)

    def update(self, model: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Change what holds for ``model`` ("": for all) as a client asks; None clears what was set.

        Returns what holds then. Raises ServeError, having changed nothing.
        """
        self._check(model)
        values = read_changes(changes)
        if values:
            self._change(model, values)
        return self.settings(model)

    def close(self, seconds: float) -> None:
        """Have every complete trace written, for at most ``seconds``. Blocks."""
        self.is_on = False
        for sampler in self._samplers.values():
            sampler.retire()
        self._files.close(seconds)

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
            if setting.level and (why := problem(setting, self._start.file)):
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
            is_valid = bool(setting.level) and not problem(setting, self._start.file)
            self._samplers[name] = Sampler(setting, self._files, self._number, is_on=is_valid)
        self.is_on = any(sampler.is_on for sampler in self._samplers.values())


class Sampler:
    """Picks the requests that one setting asks for, and takes their traces (see ``wire.trace.Recorder``)."""

    def __init__(self, setting: TraceSetting, files: TraceFiles, number: Callable[[], int], *, is_on: bool) -> None:
        self.setting = setting
        self.is_on = is_on
        self.number = number
        self._files = files
        self._spool = Spool(files, setting.log_frequency, numbered=setting.count >= 0)
        self._seen = 0
        self._left = setting.count
        self._open = 0
        self._is_replaced = False

    @property
    def now(self) -> TraceSetting:
        """The setting, with as many traces to go as there are left."""
        return replace(self.setting, count=self._left)

    def takes_next(self) -> bool:
        """Whether the request that has come is one to be traced."""
        if not self.is_on or not self._left:
            return False
        self._seen += 1
        if self._seen % self.setting.rate:
            return False
        if self._left > 0:
            self._left -= 1
        self._open += 1
        return True

    def complete(self, root: Trace) -> None:
        """Have a trace written that has come to its end."""
        self._open -= 1
        self._files.put(self._spool, root, last=not self._left and not self._open)
        self._end_if_over()

    def retire(self) -> None:
        """Another setting holds from now on; what is under way still comes here."""
        self._is_replaced = True
        self.is_on = False
        self._end_if_over()

    def _end_if_over(self) -> None:
        if self._is_replaced and not self._open and self._spool.is_begun:
            self._files.do(self._spool.end)


def propagated(headers: Mapping[bytes, bytes]) -> str | None:
    """The W3C trace context in ``headers`` as a JSON object, for a model that is part of a larger trace."""
    parent = headers.get(b"traceparent")
    if parent is None or not _TRACEPARENT.fullmatch(parent):
        return None
    context = {"traceparent": parent.decode("ascii")}
    state = headers.get(b"tracestate", b"")
    if state and len(state) <= _LONGEST_STATE:
        context["tracestate"] = state.decode("latin-1")
    return json.dumps(context, separators=(",", ":"))
