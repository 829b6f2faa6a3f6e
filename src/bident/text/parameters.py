"""The options of Ollama by name and type: those of a Modelfile's PARAMETER and of a request's ``options``.

Names and types are those of Ollama's modelfile and API documents ("Valid Parameters and Values").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bident.errors import ServeError, invalid_arg

INTEGERS = frozenset(
    {"num_keep", "seed", "num_predict", "top_k", "repeat_last_n"}
    | {"num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "draft_num_predict"}
)
NUMBERS = frozenset(
    {"top_p", "min_p", "typical_p", "temperature", "repeat_penalty", "presence_penalty", "frequency_penalty"}
)
BOOLEANS = frozenset({"use_mmap"})
LISTS = frozenset({"stop"})
KNOWN = INTEGERS | NUMBERS | BOOLEANS | LISTS
OBSOLETE = frozenset(
    {"penalize_newline", "low_vram", "f16_kv", "logits_all", "vocab_only", "use_mlock"}
    | {"mirostat", "mirostat_tau", "mirostat_eta", "tfs_z"}
)
"""Options that older Modelfiles have and that no longer do anything."""

_LARGEST = (1 << 32) - 1
_WORDS = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}


def from_text(name: str, text: str) -> Any:
    """What ``PARAMETER name text`` means; of a list, one of its elements.

    Raises INVALID_ARG: ``unknown parameter 'x'``, or the type it must have.
    """
    check_name(name)
    reader: Callable[[str], Any]
    if name in INTEGERS:
        reader, expected = lambda word: _fitting(int(word)), "an integer"
    elif name in NUMBERS:
        reader, expected = _finite, "a number"
    elif name in BOOLEANS:
        reader, expected = lambda word: _WORDS[word.lower()], "true or false"
    else:
        return text
    try:
        return reader(text)
    except (ValueError, KeyError, OverflowError):
        raise invalid_arg(f"parameter '{name}' must be {expected}, not '{text[:80]}'") from None


def checked(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """``parameters`` of a request to create a model, typed; a text stands for what it says.

    Raises INVALID_ARG for unknown names and values that cannot be of the type.
    """
    typed: dict[str, Any] = {}
    for name, value in parameters.items():
        check_name(name)
        if value is not None and name not in OBSOLETE:
            typed[name] = _typed(name, value)
    return typed


def check_name(name: str) -> None:
    """Raise INVALID_ARG unless there is, or was, such a parameter."""
    if name not in KNOWN and name not in OBSOLETE:
        raise invalid_arg(f"unknown parameter '{name[:80]}'; there are {', '.join(sorted(KNOWN))}")


def _typed(name: str, value: Any) -> Any:
    if name in LISTS:
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, Sequence) or not all(isinstance(each, str) for each in values):
            raise invalid_arg(f"parameter '{name}' must be a text or a list of texts")
        return list(values)
    if isinstance(value, str):
        return from_text(name, value)
    if name in BOOLEANS and isinstance(value, bool):
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if name in NUMBERS and is_number:
        return float(value)
    if name in INTEGERS and is_number and value == int(value) and abs(value) <= _LARGEST:
        return int(value)
    raise _wrong_type(name, value)


def _wrong_type(name: str, value: Any) -> ServeError:
    kind = "an integer" if name in INTEGERS else "a number" if name in NUMBERS else "true or false"
    return invalid_arg(f"parameter '{name}' must be {kind}, not {str(value)[:80]!r}")


def _fitting(value: int) -> int:
    if abs(value) > _LARGEST:
        raise OverflowError
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value
