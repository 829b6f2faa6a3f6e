"""What is noted of a request that was sampled: when it was where, and with which tensors.

A trace is of one request to one model. What that model, or an ensemble's scheduler, asks of others on its behalf
are its children; all of them together go to the recorder once the last one has ended. The names of moments and
activities are Triton's (``docs/user_guide/trace.md``).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from numpy.typing import NDArray

from bident.errors import Code, ServeError
from bident.wire.infer import Spent
from bident.wire.trace_context import TraceContext

if TYPE_CHECKING:
    from bident.wire.infer import InferInput, InferRequest, InferResponse


class Moment(NamedTuple):
    """When (monotonic nanoseconds) something happened."""

    name: str
    ns: int


class TensorSeen(NamedTuple):
    """A tensor that passed: ``data`` is an array of ``shape``, or the flat list of its elements."""

    activity: str
    name: str
    datatype: str
    shape: tuple[int, ...]
    data: list[Any] | NDArray[Any]


Event: TypeAlias = Moment | TensorSeen

COMPUTE = ("COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END")


class Recorder(Protocol):
    """Who gives traces their numbers, and takes them when they are complete."""

    def number(self) -> int:
        """The id of the next trace."""

    def place(self, above: TraceContext | None) -> TraceContext | None:
        """The span of a trace whose parent, or client, is at ``above``; None where there is no larger trace."""

    def complete(self, root: Trace) -> None:
        """``root`` and its ``family`` have all ended."""


class Trace:
    """Of one request. Doors ``stamp``, the engine does the rest; all of it on the event loop.

    ``timestamps`` and ``tensors`` are what is wanted. ``above`` is the span of a larger trace that this one is part
    of, ``place`` its own, ``context`` that as models get it. ``family``, of a trace without a parent, is this one and
    those of all requests made on its behalf.
    """

    __slots__ = (
        "__weakref__",
        "_has_ended",
        "_is_complete",
        "_open",
        "_recorder",
        "_root",
        "above",
        "batch_size",
        "begun_at",
        "computed",
        "error",
        "events",
        "family",
        "id",
        "model_name",
        "model_version",
        "parent_id",
        "place",
        "request_id",
        "tensors",
        "timestamps",
    )

    def __init__(
        self,
        recorder: Recorder,
        *,
        timestamps: bool,
        tensors: bool,
        above: TraceContext | None = None,
        parent: Trace | None = None,
    ) -> None:
        self.id = recorder.number()
        self.parent_id = 0 if parent is None else parent.id
        self.timestamps = timestamps
        self.tensors = tensors
        self.above = above if parent is None else parent.place
        self.place: TraceContext | None = recorder.place(self.above)
        self.model_name = ""
        self.model_version = 0
        self.request_id = ""
        self.events: list[Event] = []
        self.begun_at = 0
        """How many of the events came before the request reached its model."""
        self.computed: tuple[Moment, ...] = ()
        """When the model ran; noted at the end, where Triton has it."""
        self.batch_size = 0
        """Rows of the batch that it ran in; 0 if it did not run."""
        self.error: tuple[str, str] | None = None
        """Why there is no result: a code's word, and the message."""
        self.family: list[Trace] = []
        self._root: Trace = self if parent is None else parent._root
        self._open = 0
        """Of a root: how many of its family have begun and not ended."""
        self._has_ended = False
        self._is_complete = False
        self._recorder = recorder

    def child(self) -> Trace:
        """The trace of a request that is made on behalf of this one."""
        return Trace(self._recorder, timestamps=self.timestamps, tensors=self.tensors, parent=self)

    @property
    def context(self) -> str | None:
        """The W3C trace context for who works on the request, as a JSON object of headers."""
        return None if self.place is None else self.place.as_json()

    @property
    def is_root(self) -> bool:
        """Whether a client made the request."""
        return not self.parent_id

    def stamp(self, name: str, ns: int = 0) -> None:
        """Note that ``name`` happened at ``ns`` (monotonic; now, if not given)."""
        if self.timestamps and not self._has_ended:
            self.events.append(Moment(name, ns or monotonic_ns()))

    def start(self, request: InferRequest, model_name: str, model_version: int) -> None:
        """The request has reached its model."""
        root = self._root
        if root._is_complete:  # whoever asks has been answered to the end, and that is written down
            self._has_ended = True
            return
        root.family.append(self)
        root._open += 1
        self.model_name = model_name
        self.model_version = model_version
        self.request_id = request.id
        self.begun_at = len(self.events)
        self.stamp("REQUEST_START")

    def queue(self, inputs: Iterable[InferInput]) -> None:
        """The request is fit to run, and waits for its turn."""
        self.stamp("QUEUE_START")
        if self.tensors:
            for tensor in inputs:
                self._see("TENSOR_QUEUE_INPUT", tensor.name, tensor.datatype.name, tensor.shape, tensor.data)

    def answer(self, response: InferResponse) -> None:
        """The model has given ``response``, which is about to be written."""
        if response.error is not None:
            self.fail(response.error)
        if self.tensors and response.columns:
            for output in response.outputs:
                shape = output.array.shape
                self._see("TENSOR_BACKEND_OUTPUT", output.name, output.datatype.name, shape, output.array)
        if self.is_root:
            self.stamp("INFER_RESPONSE_COMPLETE")

    def fail(self, error: BaseException) -> None:
        """The request, or a part of its answer, has failed. Kept are words: an exception holds on to all it passed."""
        code = error.code if isinstance(error, ServeError) else Code.INTERNAL
        self.error = (code.value, str(error))

    def end(self) -> None:
        """Nothing more happens to the request. Says so once, however often it is called."""
        if self._has_ended or not self.model_name:
            return
        if self.timestamps:
            self.events += self.computed
        self.stamp("REQUEST_END")
        self._has_ended = True
        root = self._root
        root._open -= 1
        if not root._open:
            root._is_complete = True
            self._recorder.complete(root)

    def _see(
        self, activity: str, name: str, datatype: str, shape: tuple[int, ...], data: list[Any] | NDArray[Any]
    ) -> None:
        if not self._has_ended:
            # Memory that is shared with a client or a model may hold something else by the time this is written down.
            kept = data if isinstance(data, list) else data.copy()
            self.events.append(TensorSeen(activity, name, datatype, shape, kept))


class TracedSpent(Spent):
    """Lets ``trace`` know of the times of its ``request``; ``outer``, who is told them anyway, is told too."""

    __slots__ = ("_outer", "_request", "_trace")

    def __init__(self, trace: Trace, request: InferRequest, outer: Spent | None) -> None:
        super().__init__()
        self._trace = trace
        self._request = request
        self._outer = outer

    def add(self, queue_ns: int, input_ns: int, infer_ns: int, output_ns: int, rows: int = 0) -> None:
        """The request waited so long, and its batch took so long for inputs, in the model, and for outputs."""
        self._trace.batch_size = rows
        start = self._request.queued_ns + queue_ns
        ends = accumulate((start, input_ns, infer_ns, output_ns))
        self._trace.computed = tuple(map(Moment, COMPUTE, ends))
        if self._outer is not None:
            self._outer.add(queue_ns, input_ns, infer_ns, output_ns)
