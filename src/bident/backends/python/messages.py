"""What the server and a worker tell each other, as the server sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from bident.errors import ServeError

Arrays = dict[str, NDArray[Any]]

SEQUENCE_START, SEQUENCE_END = 1, 2
"""What ``Request.flags`` may say: the first and the last request of a sequence (Triton's numbers)."""


@dataclass(slots=True)
class Request:
    """One request of a batch, or a request that a model makes of another.

    ``inputs`` is None where the batch carries them merged; then ``rows`` says how many of the batch's
    rows are this request's. ``outputs`` names what is wanted, None for everything the model gives.
    """

    id: str = ""
    inputs: Arrays | None = None
    rows: int = 1
    outputs: Sequence[str] | None = None
    parameters: dict[str, Any] | None = None
    correlation_id: int | str = 0
    flags: int = 0
    timeout_us: int = 0
    priority: int = 0
    trace: str | None = None
    """The W3C trace context, as JSON."""
    trace_id: int = 0
    """Of the server's own trace; 0 if there is none."""


@dataclass(slots=True)
class Batch:
    """Requests that one ``execute`` is called with.

    ``columns``, if given, holds the inputs of all requests, one behind the other along the first axis.
    ``id`` is the caller's, unique among the batches of a worker that await answers.
    """

    id: int
    requests: Sequence[Request]
    columns: Arrays | None = None


@dataclass(slots=True)
class Reply:
    """One response to one request of a batch. ``outputs`` is empty if it failed, or if nothing but the end came."""

    batch: int
    index: int
    outputs: Arrays
    error: ServeError | None = None
    parameters: dict[str, Any] | None = None
    final: bool = True
    rescheduled: bool = False
    """The model wants the request once more; it is no longer the worker's."""


@dataclass(slots=True)
class Answers:
    """The only responses to all requests of a batch, one behind the other along the first axis of ``columns``."""

    batch: int
    columns: Arrays
    rows: Sequence[int]
    """For each request, how many rows are its."""

    def replies(self) -> list[Reply]:
        """The responses one by one, as views."""
        replies: list[Reply] = []
        start = 0
        for index, count in enumerate(self.rows):
            stop = start + count
            outputs = {name: column[start:stop] for name, column in self.columns.items()}
            replies.append(Reply(self.batch, index, outputs))
            start = stop
        return replies


@dataclass(slots=True)
class BatchDone:
    """``execute`` has returned: the worker can take the next batch. Clocks are monotonic nanoseconds."""

    batch: int
    start_ns: int
    end_ns: int


@dataclass(slots=True)
class InferCall:
    """The model asks another one. Answer with ``Worker.answer_infer``, as often as the other model does."""

    call: int
    model: str
    version: int
    decoupled: bool
    request: Request


@dataclass(slots=True)
class InferDropped:
    """The model wants no more answers to an InferCall."""

    call: int


@dataclass(slots=True)
class ModelCall:
    """The model wants another one loaded, unloaded, or to know whether it is ready. ``Worker.answer_call``."""

    call: int
    what: str
    """``load``, ``unload`` or ``is_ready``."""
    model: str
    version: str = ""
    config: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    unload_dependents: bool = False


@dataclass(slots=True)
class MetricCall:
    """The model makes a metric or reads one. ``Worker.answer_call``; ``CustomMetrics`` knows the answer."""

    call: int
    what: str
    """``metric_family``, ``metric`` or ``metric_value``."""
    details: dict[str, Any]


@dataclass(slots=True)
class MetricChange:
    """The model changes a metric, or lets go of it."""

    id: int
    do: str
    """``increment``, ``set``, ``observe``, ``delete`` or ``delete_family``."""
    value: float


@dataclass(slots=True)
class LogLine:
    """The model writes to the server's log."""

    level: int
    """A level of ``logging``."""
    message: str
    file: str
    line: int


@dataclass(slots=True)
class Readiness:
    """What the model's ``is_ready`` says."""

    token: int
    ready: bool
    reason: str


@dataclass(slots=True)
class Started:
    """The answer to what the worker was started for."""

    config: dict[str, Any] | None
    error: str | None


@dataclass(slots=True)
class Died:
    """The worker is gone. Every request that awaited an answer has been answered with an error before."""

    reason: str


Event = (
    Reply
    | Answers
    | BatchDone
    | InferCall
    | InferDropped
    | ModelCall
    | MetricCall
    | MetricChange
    | LogLine
    | Readiness
    | Started
    | Died
)
