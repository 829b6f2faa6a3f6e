"""Finds the checks: every concrete :class:`Check` in the packages beside this module."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import lru_cache
from pathlib import Path

from bident.doctor.check import Check


@lru_cache(maxsize=1)
def checks() -> tuple[Check, ...]:
    """One object for each check, sorted by name. Imports every module of the doctor."""
    for package in pkgutil.iter_modules([str(Path(__file__).parent)], "bident.doctor."):
        if package.ispkg:
            _import_all(package.name)
    found = {kind.name: kind() for kind in _concrete(Check)}  # type: ignore[type-abstract]
    return tuple(found[name] for name in sorted(found))


def _import_all(package: str) -> None:
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        importlib.import_module(module.name)


def _concrete(kind: type[Check]) -> list[type[Check]]:
    """The classes below ``kind`` that can be made, of the doctor's own modules: tests may define others."""
    found = []
    for below in kind.__subclasses__():
        if not inspect.isabstract(below) and below.__module__.startswith("bident.doctor."):
            found.append(below)
        found += _concrete(below)
    return found
