"""What the author of a model probably has to change: a line added to errors that say too little themselves."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .runtime import find

if TYPE_CHECKING:
    from .runtime import Runtime

METHODS = ("auto_complete_config", "initialize", "execute", "is_ready", "finalize")
"""The methods of a model that the server calls."""

_LISTED = 12


def note_miss(whose: str, name: Any, names: Sequence[Any]) -> None:
    """Remember that something was looked up by a ``name`` that it has not, and got None; it has ``names``.

    ``whose``: who was asked for what, such as ``the request has no input``. That is no fault in itself.
    """
    runtime = find()
    if runtime is not None:
        runtime.missed = (time.monotonic_ns(), whose, name, names)


def hint_of(error: BaseException, runtime: Runtime, since_ns: int) -> str:
    """What led to ``error``, which was raised by what began at ``since_ns`` (monotonic); empty if that is unknown."""
    if isinstance(error, ModuleNotFoundError):
        python = sys.executable
        return (
            f"this model runs under {python}: install there what it imports ({python} -m pip install ...), or name an "
            "environment that has it with the parameter EXECUTION_ENV_PATH"
        )
    if isinstance(error, (AttributeError, TypeError)) and "'NoneType'" in str(error):
        missed = runtime.missed
        if missed is not None and missed[0] >= since_ns:
            return _miss(*missed[1:])
    return ""


def near(name: Any, known: Iterable[Any]) -> str:
    """The one of ``known`` that is most like ``name``; empty if none is."""
    words = {word.lower(): word for word in known if isinstance(word, str)}
    found = _close(str(name).lower()[:256], list(words)[:1000], 0.6)
    return words[found[0]] if found else ""


def misspelt(model: Any) -> dict[str, str]:
    """Methods of ``model`` that nobody will call, by what their names were probably meant to be."""
    names = dir(type(model))
    public = [name for name in names if not name.startswith("_") and name not in METHODS]
    found = {}
    for method in METHODS if public else ():
        if not hasattr(model, method):
            similar = _close(method, public, 0.8)
            if similar and callable(getattr(model, similar[0], None)):
                found[method] = similar[0]
    return found


def _close(word: str, known: list[str], cutoff: float) -> list[str]:
    import difflib  # not before it is needed: most workers start without

    return difflib.get_close_matches(word, known, 1, cutoff)


def _miss(whose: str, name: Any, names: Sequence[Any]) -> str:
    listed = ", ".join(f"'{each}'" for each in names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
    similar = near(name, names)
    question = f"; did you mean '{similar}'?" if similar else ""
    return f"{whose} '{name}', it has {listed or 'none'}{question}"
