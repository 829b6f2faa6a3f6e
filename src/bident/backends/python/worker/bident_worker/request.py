"""``pb_utils.InferenceRequest``: what the server asks of the model, and what the model asks of others."""

from __future__ import annotations

import json
import operator
from collections.abc import Sequence
from typing import Any

from . import calls, runtime
from .errors import TritonModelException
from .response import checked_parameters, listed
from .sender import Batch, InferenceResponseSender
from .tensor import Tensor

RELEASE_ALL, RELEASE_RESCHEDULE = 1, 2

TRITONSERVER_MEMORY_CPU = 0
TRITONSERVER_MEMORY_GPU = 1


def _integer(name: str, value: Any, bits: int, *, signed: bool = False) -> int:
    """``value`` as an integer of ``bits`` bits. Raises TypeError when it is none, as Triton's binding does."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, found {value!r}") from None
    low, high = (-(1 << bits - 1), 1 << bits - 1) if signed else (0, 1 << bits)
    if not low <= number < high:
        kind = "a signed" if signed else "an unsigned"
        raise TypeError(f"{name} must be {kind} {bits}-bit integer, found {number}")
    return number


def _check_names(names: Sequence[Any], where: str) -> None:
    for name in names:
        if not name:
            raise TritonModelException(f"Requested output name {where}")
        if not isinstance(name, str):
            raise TypeError(f"requested_output_names must be a sequence of str, found {name!r} in it")


class PreferredMemory:
    """Where a model would like the answer to its request to lie. There is only the processor's memory."""

    def __init__(self, preferred_memory_type: int, preferred_device_id: int = 0) -> None:
        self.preferred_memory_type = preferred_memory_type
        self.preferred_device_id = preferred_device_id


class InferenceTrace:
    """The trace that a request belongs to."""

    __slots__ = ("_context", "_number")

    def __init__(self, context: str | None = None) -> None:
        if not isinstance(context, (str, type(None))):
            raise TypeError(f"InferenceTrace takes the trace context as str, found {context!r}")
        self._context = context
        self._number = 0

    def get_context(self) -> str | None:
        """The propagated trace context, as JSON; None if there is none."""
        return self._context


class InferenceRequest:
    """One request."""

    # Defaults live on the class: one is made per request, and most never differ from them.
    _request_id = ""
    _correlation_id: Any = 0
    _flags = 0
    _timeout = 0
    _priority = 0
    _parameters: dict[str, Any] | None = None
    _trace: InferenceTrace | None = None
    _model_name = ""
    _model_version = -1
    _release_flags = RELEASE_ALL
    _batch: Batch | None = None
    _index = 0
    _sender: InferenceResponseSender | None = None
    _runtime: runtime.Runtime | None = None
    _inputs: list[Tensor]
    _outputs: Sequence[str]

    def __init__(  # noqa: PLR0913, PLR0917 - Triton's signature
        self,
        request_id: str = "",
        correlation_id: Any = 0,
        inputs: Sequence[Tensor] | None = None,
        requested_output_names: Sequence[str] | None = None,
        model_name: str | None = None,
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        preferred_memory: PreferredMemory | None = None,
        trace: InferenceTrace | None = None,
        parameters: dict[str, Any] | None = None,
    ) -> None:
        if inputs is None or requested_output_names is None or not isinstance(model_name, str):
            raise TypeError("InferenceRequest takes model_name, requested_output_names and inputs")
        if not isinstance(correlation_id, (int, str)):
            raise TritonModelException("Correlation ID must be integer or string")
        if isinstance(correlation_id, int) and not 0 <= correlation_id < 1 << 64:
            raise TritonModelException(f"Correlation ID must be an unsigned 64-bit integer, found {correlation_id}")
        if not isinstance(request_id, str):
            raise TypeError(f"request_id must be str, found {request_id!r}")
        inputs = listed("inputs", inputs)
        where = f"for request with id '{request_id}' and model name '{model_name}' should not be empty."
        for tensor in inputs:
            if tensor is None:
                raise TritonModelException(f"Input tensor {where}")
            if not isinstance(tensor, Tensor):
                raise TypeError(f"InferenceRequest takes a list of pb_utils.Tensor, found {type(tensor)} in it")
        _check_names(requested_output_names, where)
        self._request_id = request_id
        self._correlation_id = correlation_id
        self._inputs = inputs
        self._outputs = sorted(set(requested_output_names))
        self._model_name = model_name
        self._model_version = _integer("model_version", model_version, 64, signed=True)
        self._flags = _integer("flags", flags, 32)
        self._timeout = _integer("timeout", timeout, 64)
        self._trace = trace
        self._parameters = checked_parameters(parameters)
        # Known here: it may be asked from a thread that does not tell whose it is.
        self._runtime = runtime.find()

    def inputs(self) -> list[Tensor]:
        """The input tensors."""
        return self._inputs

    def request_id(self) -> str:
        """The client's word for the request."""
        return self._request_id

    def correlation_id(self) -> Any:
        """The sequence that the request belongs to: a number or a text."""
        return self._correlation_id

    def flags(self) -> int:
        """The request's flags: first of its sequence, last of its sequence."""
        return self._flags

    def set_flags(self, flags: int) -> None:
        """Set the flags."""
        self._flags = _integer("flags", flags, 32)

    def timeout(self) -> int:
        """How long the client wants to wait, in microseconds; 0 is for ever."""
        return self._timeout

    def priority(self) -> int:
        """The request's priority; 0 is the model's default."""
        return self._priority

    def parameters(self) -> str:
        """The request parameters, as JSON."""
        return json.dumps(self._parameters or {}, ensure_ascii=False, separators=(",", ":"))

    def requested_output_names(self) -> set[str]:
        """The outputs that are wanted: every declared one, where the client names none."""
        if self._outputs or self._batch is None:
            return set(self._outputs)
        served = runtime.find()
        return set(served.outputs) if served is not None else set()

    def trace(self) -> InferenceTrace:
        """The trace that the request belongs to."""
        return self._trace or InferenceTrace()

    def is_cancelled(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._batch is not None and self._batch.is_cancelled(self._index)

    def get_response_sender(self) -> InferenceResponseSender:
        """The means to answer apart from what ``execute`` returns."""
        if self._batch is None:
            raise TritonModelException("Only requests given to 'execute' have a response sender.")
        sender = self._sender
        if sender is None:
            sender = self._sender = InferenceResponseSender(self._batch, self._index)
        return sender

    def set_release_flags(self, flags: int) -> None:
        """Say that the server shall give the request to ``execute`` once more, later."""
        if flags not in (RELEASE_ALL, RELEASE_RESCHEDULE):
            raise TritonModelException(
                f"Unsupported release flags {flags}; use TRITONSERVER_REQUEST_RELEASE_RESCHEDULE."
            )
        self._release_flags = flags

    def exec(self, decoupled: bool = False) -> Any:
        """Ask the other model, and wait: its response, or an iterator of its responses."""
        return calls.execute(self, decoupled)

    def async_exec(self, decoupled: bool = False) -> Any:
        """Ask the other model; awaiting the result gives what ``exec`` does."""
        return calls.execute_async(self, decoupled)


class DecoupledRequest(InferenceRequest):
    """A request to a decoupled model, which may answer it long after ``execute``: as long as it keeps it."""

    def __del__(self) -> None:
        if self._sender is None and self._batch is not None and self._batch.is_open(self._index):
            self._batch.abandon(self._index, "the model dropped a request without taking its response sender")
