"""The models of the catalogue in a real library, pulled once into ``build`` and kept between runs."""

from __future__ import annotations

from pathlib import Path

from benchmarks import text_servers
from bident.text.model import TextModel

ROOT = Path(__file__).parents[2] / "build" / "weights" / "library"


def pulled(name: str) -> TextModel:
    """The model ``name`` of the catalogue; it must not be written to."""
    return text_servers.pulled(name, ROOT)
