"""What is different between two answers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_REQUEST_ID = re.compile(r"^(?:in ensemble '\w+', )?\[request id: [^\]]*\] ")
_FRAGMENT_END = re.compile(r"\. |; |\n|, got | \(|\.$|$")
_UNPARSED = "failed to parse the request JSON buffer"
_OF_MODEL = re.compile(r" (?:for|in) model '?[^' ]*'?")
_RELATIVE = 2e-7
"""Half a step of FP32: what its two ways of being printed may differ by."""


@dataclass(frozen=True)
class Mismatch:
    """One place in which two answers differ."""

    where: str
    triton: Any
    bident: Any

    def __str__(self) -> str:
        return f"{self.where}: {_short(self.triton)} -> {_short(self.bident)}"


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) < 400 else shown[:400] + "..."


def mismatches(triton: Any, bident: Any, where: str = "") -> Iterator[Mismatch]:
    """Everything in which ``bident`` is not what ``triton`` is; an error's text may go on."""
    if isinstance(triton, dict) and isinstance(bident, dict):
        for key in [*triton, *(key for key in bident if key not in triton)]:
            place = f"{where}.{key}" if where else str(key)
            if key in triton and key in bident:
                yield from mismatches(triton[key], bident[key], place)
            else:
                yield Mismatch(place, triton.get(key, "absent"), bident.get(key, "absent"))
    elif isinstance(triton, list) and isinstance(bident, list) and len(triton) == len(bident):
        for at, (one, other) in enumerate(zip(triton, bident, strict=True)):
            yield from mismatches(one, other, f"{where}.{at}")
    elif not _agree(triton, bident, where):
        yield Mismatch(where, triton, bident)


def _agree(triton: Any, bident: Any, where: str) -> bool:
    if isinstance(triton, str) and isinstance(bident, str) and where.rpartition(".")[2] in ("error", "error_message"):
        return _plain(fragment(triton)) in _plain(bident)
    if isinstance(triton, float) or isinstance(bident, float):
        return _is_number(triton) and _is_number(bident) and _same_number(triton, bident)
    return type(triton) is type(bident) and bool(triton == bident)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same_number(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_RELATIVE) or (math.isnan(one) and math.isnan(other))


def fragment(message: str) -> str:
    """The first clause of one of Triton's messages, without the request's id: what clients match on."""
    bare = _REQUEST_ID.sub("", message)
    if bare.startswith(_UNPARSED):
        return _UNPARSED  # what follows is the JSON library's own
    return bare[: _FRAGMENT_END.search(bare).start()]  # type: ignore[union-attr]


def _plain(message: str) -> str:
    """``message`` without what Triton itself now has and now has not: quotes, and the model that is meant."""
    return _OF_MODEL.sub("", message).replace("'", "")
