"""Makes a conversation fit the context: the oldest messages are left out, and how many tokens that were is said.

As in Ollama, system messages and the last message stay. Where these alone are too long, Ollama cuts the prompt
somewhere in its middle; here the last message loses its beginning, so that the turns stay whole.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from bident.errors import ServeError, invalid_arg
from bident.text.answering.asked import Server
from bident.text.answering.tokens import detokenize, tokenize
from bident.wire.text import Message

IMAGE_TOKENS = 768
"""What a picture takes, as Ollama reckons; how much it really is, only the projector knows."""
_MESSAGE_BYTES = 256
"""What a template writes around a message, at most."""
_MOST_BYTES = 4 << 20
"""What llama.cpp makes tokens of in about three seconds."""
_MOST_BYTES_PER_TOKEN = 256
_TRIES = 4
_ROOM_PART = 8
"""A prompt that has to be cut leaves this part of the context (one of so many) to the answer."""

Count = Callable[[Sequence[Message]], Awaitable[int]]


@dataclass(frozen=True)
class Fitted:
    """Messages that fit, and how many tokens the others had."""

    messages: Sequence[Message]
    truncated_tokens: int = 0


def too_long(needed: int, available: int, what: str = "prompt") -> ServeError:
    """Ollama's words for an input that is longer than the context, with the numbers."""
    return invalid_arg(
        f"the input length exceeds the context length: the {what} has {needed} tokens, the context {available}, and "
        "the answer needs room too; shorten it, ask for more with the option num_ctx, or allow truncate"
    )


def check_size(size: int, context_length: int) -> None:
    """Raise INVALID_ARG for a prompt of ``size`` bytes that would take long only to be counted, and cannot fit.

    A ``context_length`` of 0 is not known: another server decides.
    """
    most = max(_MOST_BYTES, _MOST_BYTES_PER_TOKEN * context_length)
    if context_length and size > most:
        raise invalid_arg(
            f"the input length exceeds the context length: the prompt has {size} bytes, the context "
            f"{context_length} tokens; more than {most} bytes are not even cut"
        )


def most_bytes(messages: Sequence[Message]) -> int:
    """More bytes than the prompt for ``messages`` has, and so more tokens: no token is shorter than a byte."""
    size = sum(_MESSAGE_BYTES + len(message.content.encode()) + len(message.thinking.encode()) for message in messages)
    calls = sum(len(str(call.arguments)) * 4 + len(call.name) * 4 for m in messages for call in m.tool_calls)
    images = sum(len(message.images) for message in messages) * IMAGE_TOKENS
    return size + calls + images


async def fit(messages: Sequence[Message], count: Count, server: Server, *, truncate: bool) -> Fitted:
    """``messages`` as they are if they fit, else what fits of them.

    ``count`` is how many tokens the prompt for some messages has. Raises INVALID_ARG with both numbers where
    ``truncate`` is not wanted, or no message is left to leave out.
    """
    available = server.context_length
    whole = await count(messages)
    if whole < available:
        return Fitted(messages)
    if not truncate:
        raise too_long(whole, available)
    kept = await _without_oldest(messages, count, available)
    length = await count(kept)
    if length >= available:
        kept, length = await _shortened(kept, count, server, length)
    return Fitted(kept, whole - length)


async def _without_oldest(messages: Sequence[Message], count: Count, available: int) -> Sequence[Message]:
    """The most of ``messages`` that fit, or the least there can be. Found by halving: each try is a whole prompt."""
    fewest, most = 0, len(messages) - 1
    while fewest < most:
        middle = (fewest + most) // 2
        if await count(_from(messages, middle)) < available:
            most = middle
        else:
            fewest = middle + 1
    return _from(messages, fewest)


def _from(messages: Sequence[Message], start: int) -> Sequence[Message]:
    """The messages from ``start`` on and the system messages before it; no tool's answer without its question."""
    last = len(messages) - 1
    while 0 < start < last and messages[start].role == "tool":
        start += 1
    return [message for place, message in enumerate(messages) if place >= start or message.role == "system"]


async def _shortened(
    messages: Sequence[Message], count: Count, server: Server, length: int
) -> tuple[Sequence[Message], int]:
    """``messages`` with a last one that has lost its beginning, and how many tokens they have now."""
    available = server.context_length
    room = max(1, available // _ROOM_PART)
    needed = length
    *before, last = messages
    tokens = await tokenize(server, last.content, add_special=False, parse_special=False)
    for _ in range(_TRIES):
        excess = length - (available - room)
        if excess >= len(tokens):
            break
        tokens = tokens[excess:]
        text = (await detokenize(server, tokens)).lstrip("\ufffd")
        shortened = [*before, replace(last, content=text)]
        length = await count(shortened)
        if length < available:
            return shortened, length
    raise too_long(needed, available, "system message and the last message together" if before else "message")
