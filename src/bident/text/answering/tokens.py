"""Text to tokens and back, by llama.cpp's ``/tokenize`` and ``/detokenize``; and conversations to prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bident.errors import Code, ServeError, invalid_arg
from bident.text.answering.asked import Server


async def tokenize(server: Server, text: str, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
    """The tokens of ``text``.

    ``add_special``: with those that the model wants at the beginning and end of a text. ``parse_special``:
    names of special tokens in the text mean these tokens.
    """
    asked = {"content": text, "add_special": add_special, "parse_special": parse_special}
    answer = await _native(server).ask("/tokenize", asked)
    return list(_part(answer, "tokens", list))


async def detokenize(server: Server, tokens: Sequence[int]) -> str:
    """The text of ``tokens``; bytes that are no text become U+FFFD. Raises INVALID_ARG for what is no token."""
    if any(token < 0 for token in tokens):
        raise invalid_arg("tokens are whole numbers from 0 on")
    try:
        answer = await _native(server).ask("/detokenize", {"tokens": list(tokens)})
    except ServeError as error:
        # llama.cpp only fails here for tokens beyond its vocabulary, and calls it its own failure.
        raise invalid_arg(f"there is a token that the model does not have: {error.message}") from None
    return str(_part(answer, "content", str))


async def apply_template(server: Server, payload: Mapping[str, Any]) -> str:
    """The prompt that the model's own chat template makes of a chat payload's messages, tools and arguments."""
    names = ("messages", "tools", "chat_template_kwargs", "parallel_tool_calls")
    asked = {name: payload[name] for name in names if name in payload}
    answer = await _native(server).ask("/apply-template", asked)
    return str(_part(answer, "prompt", str))


def _native(server: Server) -> Any:
    if not server.is_native:
        raise ServeError(Code.UNSUPPORTED, f"{server.model} is served by another server, which cannot tokenize for us")
    return server.asked


def _part(answer: Mapping[str, Any], name: str, kind: type) -> Any:
    part = answer.get(name)
    if not isinstance(part, kind):
        raise ServeError(Code.INTERNAL, f"llama.cpp answered without {name}")
    return part
