"""Sends models to the registry that their names begin with."""

from __future__ import annotations

from collections.abc import Sequence

from bident.errors import Code, ServeError
from bident.text.names import ModelName
from bident.text.store.jobs import Report
from bident.text.store.registry import Registry
from bident.text.store.shelf import LibraryShelf
from bident.text.store.web import client


class Pusher:
    """Sends from any of ``shelves``."""

    def __init__(self, shelves: Sequence[LibraryShelf]) -> None:
        self._shelves = shelves

    def push(self, name: ModelName, insecure: bool, report: Report) -> None:
        """Upload what the registry does not have, then the manifest. Blocks; raises as ``Library.push`` says."""
        report("retrieving manifest")
        for shelf in self._shelves:
            found = shelf.manifest_of(name)
            if found is not None:
                break
        else:
            raise ServeError(Code.NOT_FOUND, f"model '{name.short}' not found")
        _, manifest = found
        with client(insecure=insecure, follow_redirects=False) as web:
            registry = Registry(web, name, insecure=insecure)
            for layer in (*manifest.layers, manifest.config):
                if registry.has(layer):
                    figures = {"digest": layer.digest, "total": layer.size, "completed": layer.size}
                    report(f"pushing {layer.digest[7:19]}", **figures)
                else:
                    registry.send_blob(layer, shelf.blob_path(layer.digest), report)
            report("pushing manifest")
            registry.send_manifest(manifest)
        report("success")
