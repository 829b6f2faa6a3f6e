"""The right to one slot of a loaded model, for the time of a request."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import orjson

from bident.errors import Code, ServeError
from bident.text.runner.loaded import Loaded


class Lease:
    """What a request may do with its model. Made by ``Residency.lease``; of no use after its block.

    All methods raise ServeError: llama.cpp's own refusals with its words, and INTERNAL ``an error was encountered
    while running the model: ...`` when its process has died. Leaving the block ends what is still going on.
    """

    def __init__(self, loaded: Loaded, load_ns: int) -> None:
        self.load_ns = load_ns
        """Nanoseconds that the request has waited until the model was loaded and a slot was free."""
        self.context_length = loaded.plan.context_length
        """Tokens that prompt and answer of one request may have together."""
        self.slots = loaded.plan.slots
        """Requests that the model answers at the same time."""
        self.batch = loaded.plan.micro_batch
        """Tokens of one text that can be embedded."""
        self._loaded = loaded
        self._open = contextlib.AsyncExitStack()

    async def stream(self, path: str, payload: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The objects of llama.cpp's stream for ``payload``. Close the generator, and its slot is free at once."""
        async with self._loaded.exchange(path, {**payload, "stream": True}) as exchange:
            self._open.callback(exchange.close)
            async for event in exchange.events():
                yield event

    async def ask(self, path: str, payload: Mapping[str, Any]) -> Any:
        """The whole answer to ``payload``, for what is quick: once begun, llama.cpp does not stop it before its end."""
        async with self._loaded.exchange(path, payload) as exchange:
            body = await exchange.whole()
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise ServeError(Code.INTERNAL, f"llama.cpp sent what is no JSON: {error}") from error

    async def forward(self, path: str, payload: Mapping[str, Any]) -> AsyncGenerator[bytes, None]:
        """The bytes of llama.cpp's own answer. Only with ``stream`` in ``payload`` does closing it free the slot."""
        async with self._loaded.exchange(path, payload) as exchange:
            self._open.callback(exchange.close)
            async for piece in exchange.pieces():
                yield piece

    async def close(self) -> None:
        """End what is still going on. ``Residency`` calls it."""
        await self._open.aclose()
