"""The rows of the repository index: where each version of a model stands, since when, and why."""

from __future__ import annotations

from collections.abc import Iterator

from bident.engine.lifecycle import Lifecycle
from bident.engine.servable import Servable
from bident.engine.state import State, VersionState
from bident.observe.clock import utc


def rows(lifecycle: Lifecycle, name: str, *, ready: bool) -> Iterator[dict[str, str]]:
    """A row for each version of ``name`` that is known (``ready``: is ready); one with the name alone if none is."""
    states = lifecycle.states(name)
    if not states and not ready:
        yield {"name": name}
    for version, noted in sorted(states.items()):
        state, reason = _standing(noted, lifecycle.routes.get((name, str(version))))
        if ready and state is not State.READY:
            continue
        row = {"name": name, "version": str(version), "state": state.value}
        if reason:
            row["reason"] = reason
        yield row


def _standing(noted: VersionState, servable: Servable | None) -> tuple[State, str]:
    """The state to show and its reason.

    A version in service whose instances have all gone is shown as unavailable: nobody gets an answer
    from it until one is back. While some are there it is ready, and the reason tells of the others.
    """
    if noted.state is State.LOADING:
        return State.LOADING, f"loading since {utc(noted.since)}"
    if noted.state is not State.READY or servable is None:
        return noted.state, noted.reason
    return (State.READY if servable.is_available else State.UNAVAILABLE), servable.reason
