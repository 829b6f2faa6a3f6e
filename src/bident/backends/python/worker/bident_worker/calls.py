"""Business logic scripting: a model asks other models, through the server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from .errors import TritonModelException
from .frames import Frame, Kind
from .link import Link, Waiter
from .response import InferenceResponse, received
from .runtime import current

if TYPE_CHECKING:
    from .request import InferenceRequest


def execute(request: InferenceRequest, decoupled: bool) -> Any:
    """Ask, and wait: a response, or an iterator of responses."""
    link = _allowed_link(request)
    waiter = link.waiter()
    call = _send(link, request, decoupled, waiter)
    if decoupled:
        return ResponseIterator(link, call, waiter)
    try:
        return _response(link, link.next_answer(waiter))
    finally:
        link.close_call(call)


def execute_async(request: InferenceRequest, decoupled: bool) -> Any:
    """Ask now; the result, when awaited, gives what ``execute`` does."""
    link = _allowed_link(request)
    loop = asyncio.get_running_loop()
    future = _Answer(loop=loop)

    def notify(frame: Frame) -> None:
        # The first answer settles the future; an iterator finds it, and the rest, in the waiter.
        waiter.notify = None
        waiter.answers.append(frame)
        loop.call_soon_threadsafe(settle)

    def settle() -> None:
        if future.done():
            return
        if decoupled:
            future.set_result(ResponseIterator(link, call, waiter))
            return
        link.close_call(call)
        future.set_result(_response(link, waiter.answers.popleft()))

    def over(done: asyncio.Future[Any]) -> None:
        link.read_no_longer()
        if done.cancelled():
            link.close_call(call)
            link.send_aside(Kind.DROP, {"call": call})

    waiter = link.waiter(notify)
    link.read_in_background()
    future.add_done_callback(over)
    try:
        call = _send(link, request, decoupled, waiter)
    except BaseException:
        future.remove_done_callback(over)
        link.read_no_longer()
        raise
    return future


class _Answer(asyncio.Future[Any]):
    """What ``async_exec`` gives, and has to be awaited."""

    def __getattr__(self, name: str) -> Any:
        forgotten = (
            "" if name.startswith("__") else "; did you forget to await it? response = await request.async_exec()"
        )
        raise AttributeError(f"what async_exec returns has no attribute '{name}'{forgotten}")


class ResponseIterator:
    """The responses of a decoupled model, as they come."""

    def __init__(self, link: Link, call: int, waiter: Waiter) -> None:
        self._link = link
        self._call = call
        self._waiter = waiter
        self._over = False

    def __iter__(self) -> ResponseIterator:
        return self

    def __next__(self) -> InferenceResponse:
        while not self._over:
            frame = self._link.next_answer(self._waiter)
            if frame.header.get("final", True):
                self._end()
            if "outputs" in frame.header or "error" in frame.header:
                return _response(self._link, frame)
        raise StopIteration("Iteration is done for the responses.")

    def cancel(self) -> None:
        """Tell the other model that no more responses are wanted."""
        if not self._over:
            self._link.send(Kind.DROP, {"call": self._call})

    def _end(self) -> None:
        self._over = True
        self._link.close_call(self._call)

    def __del__(self) -> None:
        if not self._over:
            self._over = True
            # Not closed under a lock: a destructor may run while this very thread holds it.
            self._link.forget_call(self._call)
            self._link.send_aside(Kind.DROP, {"call": self._call})


def _allowed_link(request: InferenceRequest) -> Link:
    runtime = request._runtime or current()
    if not runtime.executing:
        raise TritonModelException("BLS is only supported during the 'execute' function.")
    return runtime.link


def _send(link: Link, request: InferenceRequest, decoupled: bool, waiter: Waiter) -> int:
    parcel = link.parcel()
    header: dict[str, Any] = {
        "model": request._model_name,
        "version": request._model_version,
        "id": request._request_id,
        "correlation_id": request._correlation_id,
        "flags": request._flags,
        "timeout": request._timeout,
        "parameters": request._parameters or {},
        "outputs": list(request._outputs),
        "trace": request._trace._context if request._trace else None,
        "trace_id": request._trace._number if request._trace else 0,
        "decoupled": bool(decoupled),
        "inputs": [parcel.add(t._name, t._datatype, (t._array,), t._array.shape) for t in request._inputs],
    }
    call = header["call"] = link.open_call(waiter)
    try:
        link.send(Kind.INFER, header, parcel)
    except BaseException:
        link.close_call(call)
        raise
    return call


def _response(link: Link, frame: Frame) -> InferenceResponse:
    return received(frame.header, link.arrays(frame, frame.header.get("outputs", ())))
