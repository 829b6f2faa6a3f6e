"""Every neighbour that is written can be asked for, and says what it is."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

import bident.connect
from bident.connect.neighbour import Neighbour
from bident.connect.registry import NEIGHBOURS, neighbour


def written() -> set[type[Neighbour]]:
    """The classes in the modules of ``bident.connect``."""
    modules = pkgutil.walk_packages(bident.connect.__path__, "bident.connect.")
    # Another Python runs the probe.
    found = [importlib.import_module(each.name) for each in modules if not each.name.endswith(".probe")]
    classes = [kind for module in found for _, kind in inspect.getmembers(module, inspect.isclass)]
    return {kind for kind in classes if issubclass(kind, Neighbour) and not inspect.isabstract(kind)}


def test_all_are_registered() -> None:
    assert {type(neighbour(name)) for name in NEIGHBOURS} == written()


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_each_says_what_it_is(name: str) -> None:
    found = neighbour(name)
    assert found.name == name
    for said in (found.summary, *found.options.values()):
        assert said == said.strip()
        assert len(said) > 10
        assert "\n" not in said
    assert all(option == option.lower() for option in found.options)
