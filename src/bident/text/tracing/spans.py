"""Which answers leave a span, and how it is made when they end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from time import time_ns
from typing import TYPE_CHECKING

from bident.errors import Code, ServeError, SettingsError
from bident.observe.langfuse import TRACE_NAME
from bident.observe.trace_settings import Picks, TraceStart
from bident.settings import TextSettings
from bident.text.tracing.clients import client
from bident.text.tracing.notes import Notes
from bident.wire.trace_context import TraceContext

if TYPE_CHECKING:
    from bident.observe.span_export import SpanExport

_EVERY_ANSWER = 1


class TextSpans:
    """Makes the spans of one server. ``usage``: whether they count tokens (``always``, ``never``, ``auto``)."""

    def __init__(self, export: SpanExport, picks: Picks, *, with_text: bool, usage: str) -> None:
        self._export = export
        self._picks = picks
        self._with_text = with_text
        self._usage = usage

    @classmethod
    def start(cls, settings: TextSettings) -> TextSpans | None:
        """Those that ``settings`` ask for; None if they ask for none.

        Raises SettingsError where they cannot be, UNAVAILABLE where the packages are missing.
        """
        start = TraceStart.parse(settings.trace_config, _EVERY_ANSWER)
        has_level = any((name, key) == ("", "level") for name, key, _ in settings.trace_config)
        if not settings.trace_config or (has_level and not start.setting.level):
            return None
        if start.spans is None:
            raise SettingsError(
                "--trace-config: the text server writes no trace files, it exports spans: --trace-config "
                "mode=opentelemetry"
            )
        start.check_installed()
        from bident.observe.span_export import SpanExport

        export = SpanExport(start.spans, "bident-text")
        return cls(export, Picks(start.setting), with_text=settings.trace_text, usage=settings.trace_usage)

    @contextlib.contextmanager
    def noting(self, operation: str, model: str) -> Iterator[Notes | None]:
        """What the block notes is exported when it is left; None if the answer is not one of those to be traced."""
        caller = client()
        if not self._picks.takes_next() and caller.span is None:
            yield None
            return
        place = TraceContext.first() if caller.span is None else caller.span.below()
        counts = self._usage == "always" or (self._usage == "auto" and not caller.counts)
        notes = Notes(operation, model, with_text=self._with_text, counts=counts)
        start_ns = time_ns()
        error: BaseException | None = None
        try:
            yield notes
        except BaseException as failure:
            error = failure
            raise
        finally:
            if not notes.is_for_nothing:
                self._put(place, start_ns, notes, _meaning(error, notes))

    def close(self, seconds: float) -> None:
        """Have everything sent, for at most ``seconds``. Blocks."""
        self._export.close(seconds)

    def _put(self, place: TraceContext, start_ns: int, notes: Notes, error: ServeError | None) -> None:
        if not self._export.has_room(1):
            return
        attributes = notes.attributes()
        said = None
        if error is not None:
            attributes["error.type"] = error.code.value
            said = error.message if self._with_text else ""  # it may quote from the prompt
        if not place.parent_id:
            attributes[TRACE_NAME] = notes.title
        self._export.put(place, notes.title, start_ns, time_ns(), attributes=attributes, error=said, is_entry=True)


def _meaning(error: BaseException | None, notes: Notes) -> ServeError | None:
    """How the answer failed, if it did: a client that leaves when it has everything has missed nothing."""
    if error is None or isinstance(error, ServeError):
        return error
    if isinstance(error, (GeneratorExit, asyncio.CancelledError)):
        return None if notes.is_complete else ServeError(Code.CANCELLED, "the client went away")
    return ServeError(Code.INTERNAL, str(error))
