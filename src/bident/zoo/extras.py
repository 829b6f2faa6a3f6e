"""Imports of what only the recipes need, with the cure when it is not installed."""

from __future__ import annotations

import importlib
from typing import Any

from bident.errors import Code, ServeError


def need(module: str) -> Any:
    """The module called ``module``. Raises UNAVAILABLE naming the extra to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ServeError(
            Code.UNAVAILABLE, f"this sample model needs '{module}' ({error}): pip install 'bident[zoo]'"
        ) from error
