"""How the streaming calls of one connection share its turns of the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bident.doors.grpc.inbox import Inbox

_MESSAGES = 64
"""How many messages of one client are served before other connections get their turn.

A frame may hold thousands of small ones, each of which costs as much as a call of its own.
"""


class Turns:
    """Counts the messages handed over in a turn, and brings the inboxes back that have more."""

    __slots__ = ("_call_soon", "_is_due", "_waiting", "left")

    def __init__(self, call_soon: Callable[[Callable[[], None]], None]) -> None:
        self._call_soon = call_soon
        self._is_due = False
        self._waiting: dict[Inbox, None] = {}
        """Those that have something to hand over, in the order of their turns."""
        self.left = _MESSAGES
        """How many messages may still be handed over in this one."""

    def begin(self) -> None:
        """The connection has its turn."""
        self.left = _MESSAGES

    def wait(self, inbox: Inbox) -> None:
        """Have ``inbox`` go on in a later turn."""
        self._waiting[inbox] = None
        if not self._is_due:
            self._is_due = True
            self._call_soon(self._go_on)

    def forget(self, inbox: Inbox) -> None:
        """The call of ``inbox`` is over."""
        self._waiting.pop(inbox, None)

    def _go_on(self) -> None:
        self._is_due = False
        self.begin()
        waiting, self._waiting = self._waiting, {}
        while waiting and self.left > 0:
            inbox = next(iter(waiting))
            del waiting[inbox]
            inbox.take_turn()
        if waiting:
            waiting.update(self._waiting)
            self._waiting = waiting
            if not self._is_due:
                self._is_due = True
                self._call_soon(self._go_on)
