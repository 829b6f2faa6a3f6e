"""What the repositories hold, as far as anybody has looked. Disks are read on threads, never on the event loop."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from bident.engine.loader import readable
from bident.errors import ServeError
from bident.model.folder import ModelFolder
from bident.model.repository import Listing, Repository

logger = logging.getLogger("bident.engine")


class Holdings:
    """The repositories of one engine. Lives on the event loop."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self._held: dict[Path, frozenset[str]] = {}
        """What each repository folder held when it could last be read."""

    @property
    def names(self) -> frozenset[str]:
        """The models that were there when their repository could last be read."""
        return frozenset().union(*self._held.values())

    def unclear(self, name: str) -> ServeError | None:
        """The refusal of a name that stands for several models; None if it does not."""
        return self.repository.unclear(name, self._held.values())

    async def look(self) -> Listing:
        """What is on disk now, which is remembered for those who ask for what is not loaded."""
        listing = await asyncio.get_running_loop().run_in_executor(None, self.repository.names)
        self._held.update(listing.roots)
        return listing

    async def find(self, name: str) -> ModelFolder:
        """The folder of ``name``. Raises ServeError, and nothing else, when there is none to be had."""
        try:
            folder = await asyncio.get_running_loop().run_in_executor(None, self.repository.find, name)
        except ServeError:
            raise
        except Exception as error:
            logger.exception("looking for '%s' failed", name)
            raise readable(error) from error
        root = folder.directory.parent
        self._held[root] = self._held.get(root, frozenset()) | {name}
        return folder

    async def meant_by(self, name: str) -> list[str]:
        """The models called ``name``: one, but where repositories are namespaces."""
        return await asyncio.get_running_loop().run_in_executor(None, self.repository.meant_by, name)

    async def directory(self, name: str) -> Path | None:
        """Where ``name`` lies; None if it does not."""
        try:
            return (await asyncio.get_running_loop().run_in_executor(None, self.repository.find, name)).directory
        except ServeError:
            return None
