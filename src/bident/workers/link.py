"""The link between the supervisor and one worker: either side asks, the other answers.

A pair of connected sockets that only these two processes have, so what comes is what the other has sent:
each message is its length and a pickle. Calls run side by side and end in any order.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import pickle
import struct
from collections.abc import Awaitable, Callable
from typing import Any

from bident.errors import Code, ServeError

logger = logging.getLogger("bident.workers")

_HEAD = struct.Struct("!Q")
_ASK, _RESULT, _REFUSAL = range(3)

Serve = Callable[[str, tuple[Any, ...]], Awaitable[Any]]


class Link(asyncio.Protocol):
    """One end. ``serve`` answers what the other asks: a verb and its arguments."""

    def __init__(self, serve: Serve, lost: Callable[[], None]) -> None:
        """``lost`` is called once when the other end has gone."""
        self._serve = serve
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._serving: set[asyncio.Task[None]] = set()

    async def ask(self, verb: str, *arguments: Any) -> Any:
        """What the other end answers. Raises the ServeError it refuses with, and ConnectionError when it has gone."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the process at the other end has gone")
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            self._send(_ASK, number, (verb, arguments))
            return await answer
        finally:
            self._asked.pop(number, None)

    def close(self) -> None:
        """End the link; whoever still waits for an answer gets a ConnectionError."""
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(ConnectionResetError("the process at the other end has gone"))
        for task in list(self._serving):
            task.cancel()
        self._lost()

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        start = 0
        while len(received) - start >= _HEAD.size:
            end = start + _HEAD.size + _HEAD.unpack_from(received, start)[0]
            if len(received) < end:
                break
            with memoryview(received) as view:
                kind, number, content = pickle.loads(view[start + _HEAD.size : end])
            start = end
            self._take(kind, number, content)
        del received[:start]

    # Inside

    def _take(self, kind: int, number: int, content: Any) -> None:
        if kind == _ASK:
            task = asyncio.get_running_loop().create_task(self._answer(number, *content))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
            return
        answer = self._asked.get(number)
        if answer is None or answer.done():
            return  # nobody waits for it any more
        if kind == _RESULT:
            answer.set_result(content)
        else:
            code, message = content
            answer.set_exception(ServeError(Code(code), message))

    async def _answer(self, number: int, verb: str, arguments: tuple[Any, ...]) -> None:
        try:
            self._send(_RESULT, number, await self._serve(verb, arguments))
        except ServeError as error:
            self._send(_REFUSAL, number, (error.code.value, error.message))
        except ConnectionError:
            # Whom this depended on has gone, which is for the one who asked to know.
            self._send(_REFUSAL, number, (Code.UNAVAILABLE.value, "the worker that did it has ended; ask again"))
        except Exception:
            logger.exception("'%s' between supervisor and worker failed", verb)
            message = f"internal error in '{verb}' between workers; the server's log has the details"
            self._send(_REFUSAL, number, (Code.INTERNAL.value, message))

    def _send(self, kind: int, number: int, content: Any) -> None:
        assert self._transport is not None
        message = pickle.dumps((kind, number, content), pickle.HIGHEST_PROTOCOL)
        self._transport.writelines((_HEAD.pack(len(message)), message))
