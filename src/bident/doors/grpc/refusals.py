"""Requests that are not gRPC, and the answers that wait until such a request has come."""

from __future__ import annotations

from dataclasses import dataclass

from bident.doors.grpc import frames
from bident.doors.grpc.flow import Outflow
from bident.doors.grpc.frames import Kind
from bident.doors.grpc.request_head import Refusal

_MOST_TAKEN = 1 << 20
"""So many bytes of a request are thrown away before it is answered, whatever is still to come."""
_SWEEPS = 3
"""So many times the sweep finds a request unfinished before it is answered."""


@dataclass(slots=True)
class _Held:
    refusal: Refusal
    taken: int = 0
    sweeps: int = 0


class Refusals:
    """The refused requests of one connection whose rest is still on its way.

    gRPC clients read an answer whenever it comes. Plain HTTP clients may not while they still send: curl 7 often waits
    for ever for the end of an answer that it has read to its end. So what is not gRPC is answered when it has come,
    or when that takes too long.
    """

    __slots__ = ("_held", "_outflow")

    def __init__(self, outflow: Outflow) -> None:
        self._outflow = outflow
        self._held: dict[int, _Held] = {}
        """By the number of the stream."""

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, number: int) -> bool:
        return number in self._held

    def hold(self, number: int, refusal: Refusal) -> None:
        """Keep the answer to the request of stream ``number`` until it is time for it."""
        self._held[number] = _Held(refusal)

    def take(self, number: int, size: int) -> bool:
        """Throw away ``size`` bytes of the request of stream ``number``; whether it has become too long."""
        held = self._held[number]
        held.taken += size
        return held.taken > _MOST_TAKEN

    def forget(self, number: int) -> None:
        """The client does not wait for the answer on stream ``number``, if it did."""
        self._held.pop(number, None)

    def forget_all(self) -> None:
        """The client waits for nothing any more."""
        self._held.clear()

    def numbers(self) -> list[int]:
        """The streams that wait."""
        return list(self._held)

    def late(self) -> list[int]:
        """For the sweep: the streams that have waited for too long."""
        for held in self._held.values():
            held.sweeps += 1
        return [number for number, held in self._held.items() if held.sweeps >= _SWEEPS]

    def answer(self, number: int) -> None:
        """Answer the request of stream ``number``, which is held: the head, and the text if the client takes it now."""
        refusal = self._held.pop(number).refusal
        outflow = self._outflow
        body = refusal.body if len(refusal.body) <= min(outflow.initial_window, outflow.window) else b""
        outflow.write_block(number, refusal.block, is_last=not body)
        if body:
            outflow.window -= len(body)
            outflow.write(frames.frame(Kind.DATA, frames.END_STREAM, number, body))
