"""Writes an answer as it comes: what the model says, what it thinks, and what the answer took."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from bident.observe.log import tame

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
_NS = 1e9


class Writer:
    """Writes to ``said`` what the model says, to ``aside`` what it thinks, and what we say of that to ``remarks``.

    On a terminal thoughts are dim, and whatever a terminal would obey is written out: a model's words are
    not the user's.
    """

    def __init__(self, said: TextIO, aside: TextIO, remarks: TextIO) -> None:
        self._said = said
        self._aside = aside
        self._remarks = remarks
        self._is_thinking = False
        self._last = "\n"
        for stream in {said, aside}:
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # a model may say what this terminal's encoding does not have

    def write(self, pieces: Iterable[dict[str, Any]]) -> dict[str, Any]:
        """Write an answer; returns its last piece. The last line is ended, also when it is broken off."""
        last: dict[str, Any] = {}
        try:
            for last in pieces:
                message = last.get("message") or {}
                self._think(message.get("thinking") or "")
                self._say(message.get("content") or "")
                for call in message.get("tool_calls") or ():
                    self._say(f"{call.get('function')}\n")
        finally:
            with contextlib.suppress(BrokenPipeError):
                self._stop_thinking()
                if self._last != "\n":
                    self._put(self._said, "\n")
        return last

    def remark(self, text: str) -> None:
        """Say something that is not the model's, if there is anything to say."""
        if text:
            self._put(self._remarks, f"{text}\n")

    def _think(self, text: str) -> None:
        if not text:
            return
        if not self._is_thinking:
            self._is_thinking = True
            self._style(_DIM)
        self._put(self._aside, text)

    def _say(self, text: str) -> None:
        if not text:
            return
        self._stop_thinking()
        self._put(self._said, text)
        self._last = text[-1]

    def _stop_thinking(self) -> None:
        if self._is_thinking:
            self._is_thinking = False
            self._style(_PLAIN)
            self._put(self._aside, "\n\n")

    def _style(self, code: str) -> None:
        if self._aside.isatty():
            self._aside.write(code)

    def _put(self, stream: TextIO, text: str) -> None:
        shown = text.encode("utf-8", "replace").decode("utf-8")  # JSON may carry half of a surrogate pair
        stream.write(tame(shown) if stream.isatty() else shown)
        stream.flush()


def warn(last: dict[str, Any]) -> str:
    """What the user should know of an answer that ended with ``last``; empty where all is well."""
    if dropped := last.get("truncated_tokens"):
        return f"(the first {dropped} tokens of the conversation did not fit and were left out; /set parameter num_ctx)"
    if last.get("done_reason") == "length":
        return f"(cut off after {last.get('eval_count', 0)} tokens)"
    return ""


def figures(last: dict[str, Any]) -> str:
    """How long an answer took, in the words and the layout of ``ollama run --verbose``."""
    lines = [("total duration", _lasting(last.get("total_duration", 0)))]
    lines.append(("load duration", _lasting(last.get("load_duration", 0))))
    for title, name in (("prompt eval", "prompt_eval"), ("eval", "eval")):
        count, spent = last.get(f"{name}_count", 0), last.get(f"{name}_duration", 0)
        lines.append((f"{title} count", f"{count} token(s)"))
        lines.append((f"{title} duration", _lasting(spent)))
        lines.append((f"{title} rate", f"{count / spent * _NS if spent else 0:.2f} tokens/s"))
    return "\n".join(f"{title + ':':<21} {value}" for title, value in lines)


def _lasting(nanoseconds: int) -> str:
    seconds = nanoseconds / _NS
    return f"{seconds:.3f}s" if seconds >= 1 else f"{seconds * 1e3:.3f}ms"


def to_standard_output() -> Writer:
    """For one answer in a pipe or a script: standard output gets what the model says and nothing else."""
    return Writer(sys.stdout, sys.stderr, sys.stderr)


def to_terminal() -> Writer:
    """For a conversation."""
    return Writer(sys.stdout, sys.stdout, sys.stderr)
