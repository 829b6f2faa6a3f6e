"""Where the versions of a model stand, and what is said of that."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from bident.errors import Code, ServeError


class State(Enum):
    """Triton's model states, as the repository index shows them."""

    UNKNOWN = "UNKNOWN"
    READY = "READY"
    UNAVAILABLE = "UNAVAILABLE"
    LOADING = "LOADING"
    UNLOADING = "UNLOADING"


UNLOADED = "unloaded"
"""The reason of a version that is unavailable because somebody unloaded it."""


@dataclass
class VersionState:
    """Where one version stands. ``since`` is a wall clock time in seconds."""

    state: State
    reason: str = ""
    since: float = field(default_factory=time.time)


def end_loading(states: dict[int, VersionState], reason: str) -> bool:
    """Note ``reason`` for every version that was loading. Returns whether one was."""
    loading = [version for version, state in states.items() if state.state is State.LOADING]
    for version in loading:
        states[version] = VersionState(State.UNAVAILABLE, reason)
    return bool(loading)


def because(states: Iterable[VersionState]) -> str:
    """Why they are as they are, in brackets; empty if there is nothing to say."""
    reasons = sorted({state.reason or state.state.value.lower() for state in states})
    return f" ({'; '.join(reasons)})" if reasons else ""


def standing(states: dict[int, VersionState]) -> str:
    """Each version with its state and reason, in Triton's words."""
    return "; ".join(
        f"version {version} is at {noted.state.value} state: {noted.reason or 'no reason is known'}"
        for version, noted in sorted(states.items())
    )


def load_failed(name: str, states: dict[int, VersionState], error: ServeError) -> ServeError:
    """Triton's words for a load of ``name`` that failed with ``error``."""
    versions = [version for version, state in states.items() if state.reason == error.message]
    if not versions:
        return ServeError(Code.INVALID_ARG, f"load failed for model '{name}': {error.message}")
    shown = "".join(f"version {version} is at UNAVAILABLE state: {error.message};\n" for version in versions)
    return ServeError(Code.INVALID_ARG, f"load failed for model '{name}': {shown}")
