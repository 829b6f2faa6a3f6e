"""The models of the catalogue in a real library, pulled once into ``build`` and kept between runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bident.errors import Code, ServeError
from bident.text.model import TextModel
from bident.text.store.library import Library

ROOT = Path(__file__).parents[2] / "build" / "weights" / "library"


def pulled(name: str) -> TextModel:
    """The model ``name`` of the catalogue; it must not be written to."""
    return asyncio.run(_pulled(name))


async def _pulled(name: str) -> TextModel:
    library = Library(ROOT)
    try:
        return await library.find(name)
    except ServeError as error:
        if error.code is not Code.NOT_FOUND:
            raise
    async for _ in library.pull(name):
        pass
    return await library.find(name)
