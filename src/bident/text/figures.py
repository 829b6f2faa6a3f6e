"""What the text engine counts: requests, tokens and times, by model."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from bident.errors import Code, ServeError
from bident.observe.histogram import Histogram
from bident.wire.text import TextEvent, TextPiece, Usage

KINDS = ("answer", "embed", "rerank")
"""What a model can be asked for."""
OUTCOMES = ("success", "refused", "unavailable", "failed", "abandoned")
"""How a request ended: answered, the client's mistake, no room for it, the model's fault, the client went away."""

_FIRST_SECONDS = (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_REQUEST_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_MOST_MODELS = 1000
_LONGEST_NAME = 512
"""Upstreams decide themselves which names they know: no client may fill the memory with names, or with one."""
_CLIENTS_FAULT = (Code.INVALID_ARG, Code.NOT_FOUND, Code.UNSUPPORTED, Code.ALREADY_EXISTS)
_NS = 1e9


class ModelFigures:
    """Those of one model. Tokens and the seconds on them are of requests that came to their end."""

    def __init__(self) -> None:
        self.ends: Counter[tuple[str, str]] = Counter()
        """Requests by kind and outcome."""
        self.seconds = {kind: Histogram(_REQUEST_SECONDS) for kind in KINDS}
        """From receiving a request to the end of its answer, for those with one."""
        self.first_seconds = Histogram(_FIRST_SECONDS)
        """From receiving a request to the first piece of its answer."""
        self.under_way = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.truncated_tokens = 0
        self.answer_tokens = 0
        self.prompt_seconds = 0.0
        self.answer_seconds = 0.0
        self.wait_seconds = 0.0

    def add(self, usage: Usage) -> None:
        """What one request took."""
        self.prompt_tokens += usage.prompt_tokens
        self.cached_tokens += usage.cached_tokens
        self.truncated_tokens += usage.truncated_tokens
        self.answer_tokens += usage.answer_tokens
        self.prompt_seconds += usage.prompt_ns / _NS
        self.answer_seconds += usage.answer_ns / _NS
        self.wait_seconds += usage.load_ns / _NS


class Asking:
    """One request on its way."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._since = time.perf_counter()
        self._has_begun = False
        self.is_complete = False
        """All of the answer has come: whoever leaves now has it."""
        self.model: ModelFigures | None = None

    def found(self, model: str) -> None:
        """The model is there, under the name ``model``."""
        self.model = self._figures.of(model)
        self.model.under_way += 1

    def event(self, event: TextEvent) -> None:
        """A piece or an end of the answer has come."""
        if isinstance(event, TextPiece):
            if not self._has_begun and self.model is not None:
                self.model.first_seconds.observe(self.seconds)
            self._has_begun = True
        elif event.usage is not None:
            self.is_complete = True
            self.took(event.usage)

    def took(self, usage: Usage) -> None:
        """What all of it took, at its end."""
        if self.model is not None:
            self.model.add(usage)

    @property
    def seconds(self) -> float:
        """Since it came."""
        return time.perf_counter() - self._since


class Figures:
    """The figures of all models that were asked. To be used on one loop."""

    def __init__(self) -> None:
        self.models: dict[str, ModelFigures] = {}
        """By name; requests for models that there are not are under the empty one."""

    def of(self, model: str) -> ModelFigures:
        """Those of ``model``; past so many models, and for a name that is too long, those of nobody."""
        if len(model) > _LONGEST_NAME or (model not in self.models and len(self.models) >= _MOST_MODELS):
            model = ""
        return self.models.setdefault(model, ModelFigures())

    @contextmanager
    def asking(self, kind: str) -> Iterator[Asking]:
        """The time of a request of ``kind``; how the block is left is how the request ended."""
        asking = Asking(self)
        outcome = "failed"
        try:
            yield asking
            outcome = "success"
        except ServeError as error:
            outcome = _outcome(error.code)
            if error.code is Code.NOT_FOUND:
                self._forget(asking)
            raise
        except (GeneratorExit, asyncio.CancelledError):
            outcome = "success" if asking.is_complete else "abandoned"
            raise
        finally:
            self._end(asking, kind, outcome)

    def _forget(self, asking: Asking) -> None:
        """Have ``asking`` be one for a model that there is not: an upstream has just said so."""
        if asking.model is not None:
            asking.model.under_way -= 1
            self.models = {name: figures for name, figures in self.models.items() if not _is_empty(figures)}
            asking.model = None

    def _end(self, asking: Asking, kind: str, outcome: str) -> None:
        if asking.model is None:
            self.of("").ends[kind, outcome] += 1
            return
        asking.model.under_way -= 1
        asking.model.ends[kind, outcome] += 1
        if outcome == "success":
            asking.model.seconds[kind].observe(asking.seconds)


def _outcome(code: Code) -> str:
    if code in _CLIENTS_FAULT:
        return "refused"
    return "unavailable" if code is Code.UNAVAILABLE else "failed"


def _is_empty(figures: ModelFigures) -> bool:
    return not figures.ends and not figures.under_way
