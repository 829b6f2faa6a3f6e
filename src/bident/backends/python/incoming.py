"""What a worker sends, checked: nothing it says may hurt the server."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from bident.backends.python.messages import (
    Answers,
    Arrays,
    BatchDone,
    Event,
    InferCall,
    InferDropped,
    LogLine,
    MetricCall,
    MetricChange,
    ModelCall,
    Readiness,
    Reply,
    Request,
    Started,
)
from bident.backends.python.outgoing import CODES
from bident.backends.python.tensors import as_numpy, received
from bident.backends.python.worker.bident_worker.arrays import DamagedError
from bident.backends.python.worker.bident_worker.forms import FORM_LIMIT, Form
from bident.backends.python.worker.bident_worker.frames import Frame, Kind
from bident.errors import ServeError

_LEVELS = [logging.INFO, logging.WARNING, logging.ERROR, logging.DEBUG]


ANSWERING = (Kind.FORM, Kind.PLAIN, Kind.RESPONSES)
"""Messages for :class:`Responses`."""


class Responses:
    """What a worker says of the batches it has.

    Methods raise DamagedError, or what unpacking nonsense raises.
    """

    def __init__(self) -> None:
        self.open: dict[int, set[int]] = {}
        """The requests of each batch that await their last answer."""
        self._executing: dict[int, int] = {}
        self._apart: set[int] = set()
        self._forms: dict[int, Form] = {}

    def sent(self, batch: int, count: int, since_ns: int) -> None:
        """The worker has been given a batch of ``count`` requests, and may be at it since ``since_ns``."""
        self.open[batch] = set(range(count))
        self._executing[batch] = since_ns

    def take(self, frame: Frame, events: list[Event]) -> None:
        """Add what an ANSWERING message says."""
        if frame.kind == Kind.PLAIN:
            self._take_plain(frame, events)
            return
        header = frame.header
        if frame.kind == Kind.FORM:
            number = _number(header["form"])
            if number in self._forms or len(self._forms) >= FORM_LIMIT:
                raise DamagedError(f"it told of form {number} twice, or of too many")
            self._forms[number] = Form(header["columns"])
            return
        batch = _number(header["batch"])
        if "columns" in header:
            events.append(self._answers(frame, batch))
        for said in header.get("replies", ()):
            events.append(self._reply(frame, batch, said))
        if "done" in header:
            start, end = header["done"]
            events.append(self._done(batch, _number(start), _number(end)))

    def _take_plain(self, frame: Frame, events: list[Event]) -> None:
        """All answers of a batch at once, and that it has been executed."""
        header = frame.header
        batch, count, rows = header["batch"], header["count"], header["rows"]
        form = self._forms.get(header["form"])
        if form is None:
            raise DamagedError(f"it never told of form {header['form']}")
        self._check_count(batch, count)
        arrays = form.read(frame.payload, count * rows)
        columns = {
            name: as_numpy(word, array) for (name, word, _, _, _), array in zip(form.columns, arrays, strict=True)
        }
        done = self._done(batch, header["start"], header["end"])
        del self.open[batch]
        events.append(Answers(batch, columns, [rows] * count))
        events.append(done)

    def _done(self, batch: int, start_ns: int, end_ns: int) -> BatchDone:
        """That a batch has left ``execute``; whatever the worker's clock says, that was since it has been sent."""
        sent_ns = self._executing.pop(batch, None)
        if sent_ns is None:
            raise DamagedError(f"it is done with batch {batch}, which it does not have")
        now = monotonic_ns()
        start_ns = min(max(sent_ns, start_ns), now)
        return BatchDone(batch, start_ns, min(max(start_ns, end_ns), now))

    def _check_count(self, batch: int, count: Any) -> None:
        if len(self.open.get(batch, ())) != count:
            raise DamagedError(f"it answered {count} requests of batch {batch}, which has another number of them")
        if batch in self._apart:
            raise DamagedError(f"it answered batch {batch} as a whole, after requests of it")

    def _answers(self, frame: Frame, batch: int) -> Answers:
        header = frame.header
        count = header["count"]
        self._check_count(batch, count)
        columns = dict([received(description, frame) for description in header["columns"]])
        rows = header["rows"]
        rows = [_number(rows)] * count if isinstance(rows, int) else [_number(row) for row in rows]
        total = sum(rows)
        if len(rows) != count or min(rows) < 0 or any(not a.ndim or len(a) != total for a in columns.values()):
            raise DamagedError(f"the rows of batch {batch} do not add up")
        # Only now, when nothing can fail any more: what is still open is answered when the worker is ended.
        del self.open[batch]
        return Answers(batch, columns, rows)

    def _reply(self, frame: Frame, batch: int, said: dict[str, Any]) -> Reply:
        index = _number(said["index"])
        waiting = self.open.get(batch)
        if waiting is None or index not in waiting:
            raise DamagedError(f"it answered request {index} of batch {batch}, which awaits no answer")
        error = _error(said["error"]) if "error" in said else None
        outputs = _arrays(frame, said.get("outputs", ()))
        final = said["final"] is not False
        reply = Reply(batch, index, outputs, error, _parameters(said), final, said.get("reschedule") is True)
        self._apart.add(batch)
        if final:
            waiting.discard(index)
            if not waiting:
                del self.open[batch]
                self._apart.discard(batch)
        return reply


def other(frame: Frame, events: list[Event]) -> None:
    """Add what any other message says. Raises DamagedError, or what unpacking nonsense raises."""
    make = _MAKERS.get(frame.kind)
    if make is None:
        if frame.kind in _SILENT:
            return
        raise DamagedError(f"there is no message of kind {frame.kind}")
    events.append(make(frame))


def _infer(frame: Frame) -> InferCall:
    header = frame.header
    request = Request(
        id=_text(header["id"]),
        inputs=_arrays(frame, header["inputs"]),
        outputs=[_text(name) for name in header["outputs"]],
        parameters=_parameters(header),
        correlation_id=header["correlation_id"] if isinstance(header["correlation_id"], str | int) else 0,
        flags=_count(header["flags"]),
        timeout_us=_count(header["timeout"]),
        trace=None if header.get("trace") is None else _text(header["trace"]),
        trace_id=_count(header.get("trace_id", 0)),
    )
    version = _number(header["version"])
    return InferCall(_number(header["call"]), _text(header["model"]), version, header["decoupled"] is True, request)


def _call(frame: Frame) -> ModelCall | MetricCall:
    header = frame.header
    call, what = _number(header["call"]), header["what"]
    if what in _METRIC_CALLS:
        _METRIC_CALLS[what](header)
        return MetricCall(call, what, header)
    if what not in ("load", "unload", "is_ready"):
        raise DamagedError(f"there is no call '{what}'")
    files = _arrays(frame, header.get("files", ()))
    return ModelCall(
        call,
        what,
        _text(header["model"]),
        version=_text(header.get("version", "")),
        config=_text(header.get("config", "")),
        files={path: content.tobytes() for path, content in files.items()},
        unload_dependents=header.get("unload_dependents") is True,
    )


def _check_family(header: dict[str, Any]) -> None:
    _text(header["name"])
    _text(header["description"])
    if _number(header["kind"]) not in _METRIC_KINDS:
        raise DamagedError(f"there is no metric of kind {header['kind']}")


def _check_metric(header: dict[str, Any]) -> None:
    _number(header["family"])
    for value in header["labels"].values():
        _text(value)


_METRIC_KINDS = range(3)
_METRIC_CALLS: dict[Any, Callable[[dict[str, Any]], object]] = {
    "metric_family": _check_family,
    "metric": _check_metric,
    "metric_value": lambda header: _number(header["id"]),
}


def _metric_change(frame: Frame) -> MetricChange:
    header = frame.header
    return MetricChange(_number(header["id"]), _text(header["do"]), float(header.get("value", 0)))


def _log(frame: Frame) -> LogLine:
    header = frame.header
    file, line = header["place"]
    return LogLine(_LEVELS[_number(header["level"])], _text(header["message"]), _text(file), _number(line))


def _readiness(frame: Frame) -> Readiness:
    header = frame.header
    return Readiness(_number(header["token"]), header["ready"] is True, _text(header.get("reason", "")))


def _started(frame: Frame) -> Started:
    header = frame.header
    config = header.get("config")
    error = header.get("error")
    return Started(config if isinstance(config, dict) else None, None if error is None else _text(error))


_MAKERS: dict[int, Callable[[Frame], Event]] = {
    Kind.INFER: _infer,
    Kind.DROP: lambda frame: InferDropped(_number(frame.header["call"])),
    Kind.CALL: _call,
    Kind.METRIC: _metric_change,
    Kind.LOG: _log,
    Kind.READY: _readiness,
    Kind.STARTED: _started,
}
_SILENT = (Kind.FREE, Kind.FINALIZED)


def _arrays(frame: Frame, descriptions: Any) -> Arrays:
    return dict([received(description, frame) for description in descriptions])


def _error(said: Any) -> ServeError:
    code, message = said
    return ServeError(CODES[_number(code)], _text(message))


def _parameters(said: dict[str, Any]) -> dict[str, Any] | None:
    parameters = said.get("parameters")
    if not parameters:
        return None
    for value in parameters.values():
        if not isinstance(value, bool | int | str):
            raise DamagedError("a parameter is neither bool, int nor str")
    checked: dict[str, Any] = parameters
    return checked


def _number(value: Any) -> int:
    if not isinstance(value, int):
        raise DamagedError(f"{value!r} is no number")
    return value


def _count(value: Any) -> int:
    if _number(value) < 0:
        raise DamagedError(f"{value!r} is less than nothing")
    return int(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise DamagedError(f"{value!r} is no text")
    return value
