"""Requests that await an answer, and ``pb_utils.InferenceResponseSender``."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from .errors import ErrorCode, TritonModelException
from .frames import Kind
from .response import InferenceResponse, describe

if TYPE_CHECKING:
    from .link import Link

FINAL = 1


class Batch:
    """The requests of one ``execute``, and which of them have been answered to the end."""

    def __init__(self, link: Link, batch_id: int, count: int, decoupled: bool) -> None:
        self.link = link
        self.id = batch_id
        self.count = count
        self.decoupled = decoupled
        self.cancelled: set[int] = set()
        """Requests whose answer nobody waits for any more."""
        self.wanted: list[Any] | None = None
        """For each request the names of the outputs it wants, None for all; None where all want all."""
        self._closed: set[int] = set()
        self._lock = threading.Lock()
        link.batches[batch_id] = self

    def close(self, index: int) -> bool:
        """Note that a request has its last answer. False if it had it already."""
        with self._lock:
            if index in self._closed:
                return False
            self._closed.add(index)
            over = len(self._closed) == self.count
        if over:
            self.link.batches.pop(self.id, None)
        return True

    def close_all(self) -> None:
        """Note that every request has its last answer."""
        with self._lock:
            self._closed.update(range(self.count))
        self.link.batches.pop(self.id, None)

    def is_cancelled(self, index: int) -> bool:
        """Whether nobody waits for the answer to a request any more."""
        if index not in self.cancelled:
            self.link.poll()
        return index in self.cancelled

    def abandon(self, index: int, text: str) -> None:
        """The model can answer a request no more: do it in its place. Called by destructors."""
        if not self.close(index):
            return
        said = {"index": index, "final": True, "error": [ErrorCode.INTERNAL.value, text]}
        self.link.send_aside(Kind.RESPONSES, {"batch": self.id, "replies": [said]})

    @property
    def is_whole(self) -> bool:
        """Whether every request still awaits its last answer."""
        return not self._closed

    def is_open(self, index: int) -> bool:
        """Whether a request still awaits its last answer."""
        return index not in self._closed

    def open_indexes(self) -> list[int]:
        """The requests that still await their last answer."""
        closed = self._closed
        return [index for index in range(self.count) if index not in closed] if closed else list(range(self.count))

    def wanted_by(self, index: int) -> Any:
        """The outputs that a request wants, None for all."""
        return None if self.wanted is None else self.wanted[index]


class InferenceResponseSender:
    """Answers one request, as often as its model may."""

    __slots__ = ("_answered", "_batch", "_closed", "_index", "_lock")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index
        self._answered = False
        self._closed = False
        self._lock = threading.Lock()

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        """Send ``response``; ``flags`` says whether it is the last. The last may come alone."""
        if flags not in (0, FINAL):
            raise TritonModelException("Unable to send response. Unsupported flag provided.")
        if response is None and flags == 0:
            raise TritonModelException(
                "Inference Response object must be provided when the response flags is set to zero."
            )
        if response is not None and not isinstance(response, InferenceResponse):
            raise TypeError(f"send takes a pb_utils.InferenceResponse, found {type(response)}")
        with self._lock:
            self._check(response)
            self._send(response, flags)

    def is_cancelled(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._batch.is_cancelled(self._index)

    def _check(self, response: InferenceResponse | None) -> None:
        if not self._batch.decoupled:
            if response is not None and self._answered:
                raise TritonModelException(
                    "Unable to send response. Non-decoupled model cannot send more than one response. If it shall, "
                    "add model_transaction_policy { decoupled: true } to its config.pbtxt."
                )
            if response is None and not self._answered:
                raise TritonModelException(
                    "Unable to send response. Non-decoupled model cannot send complete final before sending a response."
                )
        if self._closed:
            raise TritonModelException("Unable to send response. Response sender has been closed.")

    def _send(self, response: InferenceResponse | None, flags: int) -> None:
        batch, index = self._batch, self._index
        if not batch.decoupled and response is None:
            self._closed = True
            return  # its only response was its last
        # A request that was answered in another way (execute failed) takes no more answers.
        if not batch.is_open(index):
            self._closed = True
            raise TritonModelException("Unable to send response. Response sender has been closed.")
        final = flags == FINAL or not batch.decoupled
        parcel = batch.link.parcel()
        said = {} if response is None else describe(response, batch.wanted_by(index), parcel)
        said["index"] = index
        said["final"] = final
        batch.link.send(Kind.RESPONSES, {"batch": batch.id, "replies": [said]}, parcel)
        self._answered = True
        self._closed = flags == FINAL
        if final:
            batch.close(index)

    def __del__(self) -> None:
        batch = getattr(self, "_batch", None)
        if batch is not None and not self._closed:
            batch.abandon(self._index, "the model dropped a request's response sender without a final response")
