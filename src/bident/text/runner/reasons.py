"""Why a child died or could not begin, from what it printed last."""

from __future__ import annotations

import re
import signal

LAST_BYTES = 8192
"""So much of what a child prints is kept."""

_ERROR_LINE = re.compile(r"^[\d.]+ E (?:\S+: +|\S+ +\S+: +|\S+ +)?(.*)$")
"""llama.cpp's log: time, level, where, what."""
_CONSEQUENCE = re.compile(r"failed to load model|exiting due to|cleaning up|failed to create context|decode\(\) failed")
"""Lines that only say that something before them went wrong."""
_LAST_WORDS = re.compile(r"GGML_ASSERT|GGML_ABORT|terminate called|what\(\):|Error:|[Ff]atal")
"""What is printed by the one that ends the process. The log, which another thread writes, may come after it."""
_LONGEST = 600
_HAS_WEIGHTS = re.compile(rb"load_model: initializing\b.*\bn_slots =")
"""Said by llama.cpp between reading the weights and trying the chat template."""


def has_weights(printed: bytes) -> bool:
    """Whether a child has read its weights, by what it has printed."""
    return _HAS_WEIGHTS.search(printed) is not None


def failure(printed: bytes) -> str:
    """Why a model could not be loaded; empty if nothing was printed about it."""
    lines = _lines(printed)
    errors = [found[1].strip() for line in lines if (found := _ERROR_LINE.match(line))]
    causes = [error for error in errors if not _CONSEQUENCE.search(error)] or errors[:1]
    return "; ".join(dict.fromkeys(causes))[:_LONGEST]


def end(code: int, printed: bytes) -> str:
    """How a process ended, and what it said about that."""
    if code < 0:
        known = -code in signal.valid_signals()
        how = f"its process was killed by signal {-code} ({signal.Signals(-code).name if known else '?'})"
        how += _MEANING.get(-code, "")
    else:
        how = f"its process exited with code {code}"
    last_words = [line for line in _lines(printed) if _LAST_WORDS.search(line) and not _ERROR_LINE.match(line)]
    said = last_words[-1] if last_words else failure(printed)
    return f"{how}: {said}"[:_LONGEST] if said else how


_MEANING = {
    int(signal.SIGKILL): ", perhaps because memory ran out",
    int(signal.SIGILL): ", because the processor lacks an instruction that llama.cpp was compiled for",
}
if hasattr(signal, "SIGBUS"):
    _MEANING[int(signal.SIGBUS)] = ", as when the file of the weights is changed while they are in use"


def _lines(printed: bytes) -> list[str]:
    return [line.strip() for line in printed.decode("utf-8", "replace").splitlines() if line.strip()]
