"""What a model inside the server has said and the event loop has not heard yet: only so much of it may wait."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from bident.backends.python.messages import Event, InferCall, Reply

MOST_WAITING = 256
"""From so many messages on, whoever wants to say more waits until half of them have been heard."""
MOST_WAITING_BYTES = 16 << 20
"""From so many bytes of tensors on, too."""
MOST_AT_ONCE = 32
"""So many events the loop hears before it turns to others; what was said together is heard together."""


class Unheard:
    """A queue from any thread of a model to the event loop."""

    def __init__(self) -> None:
        self._said: deque[tuple[Sequence[Event], int]] = deque()
        self._bytes = 0
        self._waiting = 0
        self._over = False
        # Reentrant: a destructor that speaks may run in the middle of anything.
        self._room = threading.Condition(threading.RLock())

    def __len__(self) -> int:
        return len(self._said)

    def put(self, events: Sequence[Event]) -> None:
        """Add what was said at once. Never waits; takes no lock for events without tensors."""
        if self._over:
            return
        size = sum(map(_size, events))
        if size:
            with self._room:
                self._bytes += size
        self._said.append((events, size))

    def wait_for_room(self) -> None:
        """Let the event loop catch up. Not to be called by the loop's own thread, nor by destructors."""
        if self._over or self._has_room(1):
            return
        with self._room:
            self._waiting += 1  # before it looks again: who takes something away looks whether anybody waits after it
            try:
                self._room.wait_for(lambda: self._over or self._has_room(2))
            finally:
                self._waiting -= 1

    def take(self) -> list[Event]:
        """The oldest events, not too many at once. For the event loop only."""
        said = self._said
        events: list[Event] = []
        size = 0
        while said and len(events) < MOST_AT_ONCE:
            more, its_size = said.popleft()
            events += more
            size += its_size
        if size or self._waiting:
            with self._room:
                self._bytes -= size
                if self._waiting and self._has_room(2):
                    self._room.notify_all()
        return events

    def close(self) -> None:
        """Nobody hears any more: what is said is lost from now on, and nobody waits."""
        with self._room:
            self._over = True
            self._said.clear()
            self._room.notify_all()

    def _has_room(self, share: int) -> bool:
        return len(self._said) * share <= MOST_WAITING and self._bytes * share <= MOST_WAITING_BYTES


def _size(event: Event) -> int:
    """The bytes of the tensors of ``event``; those of merged answers do not count, as they end their batch."""
    if type(event) is Reply:
        arrays = event.outputs
    elif type(event) is InferCall:
        arrays = event.request.inputs or {}
    else:
        return 0
    return sum([sum(map(len, array.flat)) if array.dtype == object else array.nbytes for array in arrays.values()])
