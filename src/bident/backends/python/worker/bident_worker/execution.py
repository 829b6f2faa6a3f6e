"""One ``execute``: run the model on a batch, and answer every request of it."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from typing import Any, Callable

from .errors import ErrorCode, told
from .frames import Kind
from .hints import hint_of
from .logger import LogLevel, write
from .request import RELEASE_RESCHEDULE, InferenceRequest
from .response import InferenceResponse, Together, describe, joined
from .runtime import Runtime
from .sender import Batch


class WrongReturnError(Exception):
    """What ``execute`` returned is no answer to its requests."""


Intake = Callable[[Any, Any, bool], "tuple[Batch, list[InferenceRequest]]"]
"""Makes the batch and the requests for ``execute`` of what brings them, the link, and whether it is decoupled."""


class Execution:
    """Runs batches through a model, one ``execute`` at a time."""

    def __init__(self, model: Any, runtime: Runtime, intake: Intake) -> None:
        self._model = model
        self._runtime = runtime
        self._intake = intake
        self._link = runtime.link
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, job: Any) -> None:
        """Execute the batch that ``job`` brings. Whatever goes wrong is an answer, too."""
        batch, requests = self._intake(job, self._link, self._runtime.decoupled)
        start = time.monotonic_ns()
        header: dict[str, Any] = {"batch": batch.id}
        parcel = self._link.parcel()
        try:
            result = self._model.execute(requests)
            if inspect.iscoroutine(result):
                result = self._finish(result, batch, requests, start)
            end = time.monotonic_ns()
            together = self._answer(result, requests, batch, header, parcel)
        except BaseException as error:  # noqa: BLE001 - sys.exit() in a model ends its request, not the worker
            end = time.monotonic_ns()
            header, parcel, together = {"batch": batch.id}, self._link.parcel(), None
            self._fail(error, batch, header, start)
            del error
        if together is not None and self._sent_plainly(together, batch, start, end):
            return
        # Let go of what the model has looked at, so that it is given back with this very message.
        result = requests = None  # type: ignore[assignment]
        header["done"] = [start, end]
        try:
            if together is not None:
                header.update(together.describe(parcel), count=batch.count)
            self._link.send(Kind.RESPONSES, header, parcel)
        except (MemoryError, ValueError) as error:
            self._link.send(Kind.RESPONSES, self._undelivered(error, batch, header))

    def _sent_plainly(self, together: Together, batch: Batch, start: int, end: int) -> bool:
        rows = together.rows
        if rows.count(rows[0]) < len(rows):
            return False
        said = (batch.id, batch.count, rows[0], start, end)
        return self._link.send_plain(tuple(together.kinds), together.columns, said)

    def allow_calls(self, *, allowed: bool) -> None:
        """Whether the model may ask other models from now on."""
        self._runtime.executing = allowed

    def close(self) -> None:
        """End the event loop that asynchronous models run on."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        if loop.is_running():
            loop.call_soon_threadsafe(loop.stop)
        else:
            loop.close()

    def event_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of an asynchronous model; for a decoupled one it runs on a thread of its own."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.new_event_loop()
            if self._runtime.decoupled:
                threading.Thread(target=_run, args=(loop,), name="bident asyncio", daemon=True).start()
            else:
                asyncio.set_event_loop(loop)
        return loop

    def _finish(self, coroutine: Any, batch: Batch, requests: list[InferenceRequest], start: int) -> Any:
        loop = self.event_loop()
        if not self._runtime.decoupled:
            return loop.run_until_complete(coroutine)

        def over(future: Any) -> None:
            error = future.exception()
            if error is None and future.result() is not None:
                error = WrongReturnError(self._must_return_none())
            header: dict[str, Any] = {"batch": batch.id}
            if error is not None:
                self._fail(error, batch, header, start)
            else:
                header["replies"] = _rescheduled(requests, batch)
            if error is not None or header["replies"]:
                self._link.send(Kind.RESPONSES, header)

        asyncio.run_coroutine_threadsafe(coroutine, loop).add_done_callback(over)
        return None

    def _must_return_none(self) -> str:
        name = self._runtime.instance_name
        return f"Python model '{name}' is using the decoupled mode and the execute function must return None."

    def _answer(
        self, result: Any, requests: list[InferenceRequest], batch: Batch, header: dict[str, Any], parcel: Any
    ) -> Together | None:
        """What to say of ``result``: all of it together, or else one by one in ``header``."""
        if self._runtime.decoupled:
            if result is not None:
                raise WrongReturnError(self._must_return_none())
            header["replies"] = _rescheduled(requests, batch)
            return None
        responses = self._checked(result, requests)
        if batch.is_whole and (batch.wanted is None or len(set(batch.wanted)) == 1):
            together = joined(responses, batch.wanted and batch.wanted[0])
            if together is not None:
                batch.close_all()
                return together
        header["replies"] = self._one_by_one(responses, requests, batch, parcel)
        return None

    def _checked(self, result: Any, requests: list[InferenceRequest]) -> Any:
        if result is None and all(request._sender is not None for request in requests):
            return [None] * len(requests)
        if type(result) is not list:
            raise WrongReturnError(f"Expected a list in the execute return, found type '{type(result)}'.")
        if len(result) != len(requests):
            raise WrongReturnError(
                "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
                f"InferenceRequest(s) size is:{len(requests)}, and InferenceResponse(s) size is:{len(result)}\n"
            )
        for response, request in zip(result, requests):
            if request._release_flags == RELEASE_RESCHEDULE:
                if response is not None:
                    raise WrongReturnError(
                        "Expected a None object in the execute function return list for reschduled request, "
                        f"found type '{type(response)}'."
                    )
            elif not isinstance(response, InferenceResponse) and (response is not None or request._sender is None):
                raise WrongReturnError(
                    "Expected an 'InferenceResponse' object in the execute function return list, "
                    f"found type '{type(response)}'."
                )
        return result

    def _one_by_one(
        self, responses: Any, requests: list[InferenceRequest], batch: Batch, parcel: Any
    ) -> list[dict[str, Any]]:
        replies: list[dict[str, Any]] = []
        for index, response in enumerate(responses):
            if requests[index]._release_flags == RELEASE_RESCHEDULE:
                said: dict[str, Any] = {"reschedule": True}
            elif response is None:
                continue  # answered, or to be answered, through its sender
            else:
                said = describe(response, batch.wanted_by(index), parcel)
            if not batch.close(index):
                self._complain(f"request {index} was answered through its response sender and by 'execute' too")
                continue
            said.update(index=index, final=True)
            replies.append(said)
        return replies

    def _fail(self, error: BaseException, batch: Batch, header: dict[str, Any], start: int) -> None:
        if isinstance(error, WrongReturnError):
            why = str(error)
        else:
            why = told(error, hint=hint_of(error, self._runtime, start))
        text = f"Failed to process the request(s) for model '{self._runtime.instance_name}', message: {why}"
        said = [ErrorCode.INTERNAL.value, text]
        replies = [{"index": i, "final": True, "error": said} for i in batch.open_indexes() if batch.close(i)]
        header["replies"] = replies
        # The server logs the errors that it is given, with the requests they are for.
        if not replies:
            self._complain(f"{text} (its requests had been answered before)")

    def _undelivered(self, error: BaseException, batch: Batch, header: dict[str, Any]) -> dict[str, Any]:
        """What to say instead of responses that could not be carried."""
        text = f"the response of model '{self._runtime.instance_name}' could not be carried: {error}"
        self._complain(text)
        replies = header.get("replies")
        indexes = range(batch.count) if replies is None else [reply["index"] for reply in replies]
        said = [ErrorCode.UNAVAILABLE.value, text]
        replies = [{"index": index, "final": True, "error": said} for index in indexes]
        return {"batch": batch.id, "replies": replies, "done": header["done"]}

    def _complain(self, text: str) -> None:
        write(text, LogLevel.ERROR)


def _rescheduled(requests: list[InferenceRequest], batch: Batch) -> list[dict[str, Any]]:
    """What to say of those requests to a decoupled model that it wants once more."""
    return [
        {"index": index, "final": True, "reschedule": True}
        for index, request in enumerate(requests)
        if request._release_flags == RELEASE_RESCHEDULE and batch.close(index)
    ]


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()
