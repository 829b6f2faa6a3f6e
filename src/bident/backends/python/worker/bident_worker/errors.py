"""Errors that models make and meet."""

from __future__ import annotations

import os
import traceback
from enum import Enum
from pathlib import Path
from typing import Any

TEXT_LIMIT = 128 * 1024
"""The longest error text that leaves the worker, in characters; a longer one loses its middle."""

_FRAMES = 100
_OURS = str(Path(__file__).parents[2]) + os.sep
"""This folder, that of the worker, and that of the server's side."""


class TritonModelException(Exception):  # noqa: N818 - Triton's name
    """What Triton's own functions raise."""


class ErrorCode(Enum):
    """Triton's error codes."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7


class TritonError:
    """The error of a response: a text and a code."""

    UNKNOWN = ErrorCode.UNKNOWN
    INTERNAL = ErrorCode.INTERNAL
    NOT_FOUND = ErrorCode.NOT_FOUND
    INVALID_ARG = ErrorCode.INVALID_ARG
    UNAVAILABLE = ErrorCode.UNAVAILABLE
    UNSUPPORTED = ErrorCode.UNSUPPORTED
    ALREADY_EXISTS = ErrorCode.ALREADY_EXISTS
    CANCELLED = ErrorCode.CANCELLED

    __slots__ = ("_code", "_message")

    def __init__(self, message: str, code: ErrorCode = ErrorCode.INTERNAL) -> None:
        if not isinstance(message, str):
            raise TypeError(f"TritonError takes a message of type str, found {type(message)}")
        if not isinstance(code, ErrorCode):
            raise TypeError(f"TritonError takes a code such as TritonError.INTERNAL, found {type(code)}")
        self._message = message
        self._code = code

    def code(self) -> ErrorCode:
        """The code."""
        return self._code

    def message(self) -> str:
        """The text."""
        return self._message


def bounded(text: str) -> str:
    """``text``, without its middle when it is too long to be carried."""
    if len(text) <= TEXT_LIMIT:
        return text
    half = TEXT_LIMIT // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def told(error: BaseException, *, hint: str = "", root: str = "") -> str:
    """``error`` as Triton words it: type, text, and where, the innermost place first; with its causes.

    ``hint`` follows the first line. With ``root``, a model's folder, that line also names the place there.
    """
    lines: list[str] = []
    seen: set[int] = set()
    current: Any = error
    while current is not None and id(current) not in seen and len(seen) < 10:
        seen.add(id(current))
        head = _headline(current)
        frames = _places(current)
        if len(seen) > 1:
            lines.append(f"caused by {head}")
        else:
            lines.append(_located(head, frames, root) if root else head)
            lines += [f"hint: {hint}"] if hint else []
        places = [f"  {f.filename}({f.lineno}): {f.name}" for f in frames]
        if places:
            lines += ["", "At:", *places]
        following = current.__cause__
        if following is None and not current.__suppress_context__:
            following = current.__context__
        current = following
    return bounded("\n".join(lines) + "\n" if len(lines) > 1 else lines[0])


def _located(head: str, frames: list[Any], root: str) -> str:
    """``head`` with the place in its first line, for whoever shows only that."""
    below = str(Path(root)) + os.sep
    own = [frame for frame in frames if frame.filename.startswith(below)]
    if not own:
        return head
    first, line_feed, rest = head.partition("\n")
    return f"{first} ({Path(own[0].filename).name}:{own[0].lineno}){line_feed}{rest}"


def _headline(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the error
        text = "<its text could not be made>"
    return f"{type(error).__name__}: {text or '<EMPTY MESSAGE>'}"


def _places(error: BaseException) -> list[Any]:
    frames = traceback.extract_tb(error.__traceback__)
    # Our own frames say nothing to the author of a model.
    named = [frame for frame in frames if not frame.filename.startswith(_OURS)]
    return list(reversed(named[-_FRAMES:]))
