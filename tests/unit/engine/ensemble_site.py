"""Writes ensembles into the repository of a site."""

from __future__ import annotations

from pathlib import Path

from tests.unit.engine.engine_fakes import IO, until
from tests.unit.engine.engine_site import Site, write_times
from tests.unit.engine.ensemble_stage import ensemble_text, step


def write_ensemble(site: Site, name: str, *steps: str, io: str = IO) -> Path:
    folder = site.models / name
    (folder / "1").mkdir(parents=True, exist_ok=True)
    (folder / "config.pbtxt").write_text(ensemble_text(*steps, io=io))
    return folder


def write_pair(site: Site, name: str = "e") -> None:
    """An ensemble of 'two' and 'three': six times X."""
    write_times(site.models, "two", "2")
    write_times(site.models, "three", "3")
    write_ensemble(site, name, step("two", "X=X", "Y=t"), step("three", "X=t", "Y=Y"))


def states(site: Site) -> dict[str, str]:
    """What each model's version 1 is said to be."""
    found = {}
    for name in site.engine.lifecycle.names():
        for version, noted in site.engine.lifecycle.states(name).items():
            assert version == 1
            found[name] = noted.state.value
    return found


def reason(site: Site, name: str) -> str:
    return site.engine.lifecycle.states(name)[1].reason


async def unloaded(site: Site, *names: str) -> None:
    await until(lambda: all(states(site)[name] == "UNAVAILABLE" for name in names), "an unload")
