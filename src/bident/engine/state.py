"""Where the versions of a model stand, and what is said of that."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from bident.errors import Code, ServeError, invalid_arg
from bident.model.folder import version_of
from bident.wire.shown import shown


class State(Enum):
    """Triton's model states, as the repository index shows them."""

    UNKNOWN = "UNKNOWN"
    READY = "READY"
    UNAVAILABLE = "UNAVAILABLE"
    LOADING = "LOADING"
    UNLOADING = "UNLOADING"


UNLOADED = "unloaded"
"""The reason of a version that is unavailable because somebody unloaded it."""

_LONGEST_VERSION = 19
"""Digits of the largest 64-bit integer with a sign."""


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


def _because(states: Iterable[VersionState]) -> str:
    """Why they are as they are, in brackets; empty if there is nothing to say."""
    reasons = sorted({state.reason or state.state.value.lower() for state in states})
    return f" ({'; '.join(reasons)})" if reasons else ""


def standing(states: dict[int, VersionState]) -> str:
    """Each version with its state and reason, in Triton's words."""
    return "; ".join(
        f"version {version} is at {noted.state.value} state: {noted.reason or 'no reason is known'}"
        for version, noted in sorted(states.items())
    )


def not_serving(name: str, version: str, states: dict[int, VersionState] | None) -> ServeError:
    """Why ``version`` ("" for the latest) of ``name`` answers nobody. ``states``: where its versions stand.

    Triton's four answers: no version at all, unknown (``states`` is None), no such version, not ready.
    """
    if version and not (version.isascii() and version.isdigit() and len(version) <= _LONGEST_VERSION):
        return invalid_arg(
            f"failed to get model version from specified version string {shown(version)} (details: stol), "
            "version should be an integral value > 0"
        )
    unknown = f"Request for unknown model: '{name}'"
    if states is None:
        return invalid_arg(f"{unknown} is not found")
    if not version:
        if all(noted.reason == UNLOADED or noted.state is State.UNLOADING for noted in states.values()):
            return ServeError(Code.NOT_FOUND, f"{unknown} is not found; load it first")
        return ServeError(Code.NOT_FOUND, f"{unknown} has no available versions{_because(states.values())}")
    number = version_of(version)
    noted = None if number is None else states.get(number)
    if noted is None:
        present = ", ".join(str(number) for number in sorted(states)) or "none"
        return ServeError(
            Code.NOT_FOUND, f"{unknown} version {version} is not found (versions of this model: {present})"
        )
    return ServeError(Code.UNAVAILABLE, f"{unknown} version {version} is not at ready state{_because([noted])}")


def load_failed(name: str, states: dict[int, VersionState], error: ServeError) -> ServeError:
    """Triton's words for a load of ``name`` that failed with ``error``."""
    versions = [version for version, state in states.items() if state.reason == error.message]
    if not versions:
        return ServeError(Code.INVALID_ARG, f"load failed for model '{name}': {error.message}")
    each = "".join(f"version {version} is at UNAVAILABLE state: {error.message};\n" for version in versions)
    return ServeError(Code.INVALID_ARG, f"load failed for model '{name}': {each}")
