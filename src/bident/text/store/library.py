"""The text models there are: our own store, other libraries served in place, and bare files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from pathlib import Path

from bident.errors import Code, ServeError, invalid_arg
from bident.text.model import TextModel
from bident.text.names import ModelName
from bident.text.store.blobs import parse_digest
from bident.text.store.card import ModelCard, card_of
from bident.text.store.jobs import Jobs, Report, Status
from bident.text.store.making import Creation, Maker, check_creation
from bident.text.store.own import OwnStore
from bident.text.store.pulling import Puller
from bident.text.store.pushing import Pusher
from bident.text.store.shelf import FileShelf, LibraryShelf, Shelf
from bident.text.store.source import destination, parse_source

DEFAULT_ROOT = Path("~/.bident/models/text")
PRUNED_AFTER_S = 86400.0
_BUFFER = 1 << 20


def ollama_libraries(environ: Mapping[str, str]) -> list[Path]:
    """Where an Ollama on this machine keeps its models: ``$OLLAMA_MODELS``, or the folder of its user or service."""
    named = environ.get("OLLAMA_MODELS", "").strip().strip("\"'")
    if named:
        return [Path(named).expanduser()]
    return [Path("~/.ollama/models").expanduser(), Path("/usr/share/ollama/.ollama/models")]


class Library:
    """All models by name. The own store at ``root`` counts first, then ``foreign`` in order, then ``files``.

    ``foreign`` are folders in Ollama's layout and ``files`` are ``.gguf`` files or folders of them: both
    are only ever read. Every method may be called on the event loop: files are worked on in threads.
    """

    def __init__(self, root: Path, foreign: Sequence[Path] = (), files: Sequence[Path] = ()) -> None:
        root = root.expanduser().absolute()
        self._own = OwnStore(root)
        others = [LibraryShelf(path.absolute(), read_only=True) for path in foreign if path.absolute() != root]
        self._libraries: list[LibraryShelf] = [self._own, *others]
        bare = [FileShelf(path.absolute()) for path in files]
        self._shelves: list[Shelf] = [*self._libraries, *bare]
        self._maker = Maker(self._own, self._libraries, bare)
        self._puller = Puller(self._own, self._maker)
        self._pusher = Pusher(self._libraries)
        self._jobs = Jobs()

    @property
    def root(self) -> Path:
        """Where our own models are."""
        return self._own.root

    async def open(self, *, prune: bool = True) -> None:
        """Tidy up after a process that was killed; ``prune`` also removes old blobs that no model needs."""
        await asyncio.to_thread(self._tidy, prune)

    async def close(self) -> None:
        """Stop what is being made or moved."""
        await self._jobs.close()

    async def find(self, name: str | ModelName) -> TextModel:
        """The model called ``name``, in either case.

        Raises NOT_FOUND (``model 'x' not found``), INVALID_ARG for what is no name, and INTERNAL with
        the reason for a model whose files cannot be used.
        """
        return await asyncio.to_thread(self._find, name)

    async def models(self) -> list[TextModel]:
        """Every model once, the one changed last first; those that cannot be used have a ``fault``."""
        return await asyncio.to_thread(self._models)

    async def show(self, name: str | ModelName, *, verbose: bool = False) -> ModelCard:
        """All that is known about a model. Raises as :meth:`find`."""
        return await asyncio.to_thread(lambda: card_of(self._find(name), verbose=verbose))

    async def verify(self, model: TextModel) -> None:
        """Make sure that the weights are those that were published; only the first time reads them whole.

        Raises INTERNAL when bytes have changed on the disk, NOT_FOUND when they have gone.
        """
        await asyncio.to_thread(self._verify, model)

    async def copy(self, source: str, destination: str) -> None:
        """Let ``destination`` be what ``source`` is now. Raises NOT_FOUND, INVALID_ARG, INTERNAL (disk full)."""
        await asyncio.to_thread(self._copy, source, destination)

    async def delete(self, name: str) -> TextModel | None:
        """Remove a model and what only it needed; returns what it was, None where its files were too broken to say.

        Raises NOT_FOUND, and INVALID_ARG where it is not ours to remove.
        """
        return await asyncio.to_thread(self._delete, name)

    async def prune(self) -> list[str]:
        """Remove blobs of our own store that no model needs; returns their digests. Never in other libraries."""
        return await asyncio.to_thread(self._own.prune, PRUNED_AFTER_S)

    async def has_blob(self, digest: str) -> bool:
        """Whether our own store has it. Raises INVALID_ARG for what is no digest."""
        return await asyncio.to_thread(self._own.blobs.has, parse_digest(digest))

    def blob_path(self, digest: str) -> Path:
        """Where the blob of our own store is or would be. Raises INVALID_ARG."""
        return self._own.blobs.path(parse_digest(digest))

    async def put_blob(self, digest: str, chunks: AsyncIterable[bytes]) -> bool:
        """Keep an upload; False (and nothing is read) where it was there already.

        Raises INVALID_ARG (``digest mismatch``), INTERNAL when the disk is full, and what ``chunks`` raises.
        """
        digest = parse_digest(digest)
        if await self.has_blob(digest):
            return False
        with await asyncio.to_thread(self._own.blobs.writer) as writer:
            buffer = bytearray()
            async for chunk in chunks:
                buffer += chunk
                if len(buffer) >= _BUFFER:
                    await asyncio.to_thread(writer.write, bytes(buffer))
                    buffer.clear()
            await asyncio.to_thread(writer.write, bytes(buffer))
            await asyncio.to_thread(writer.commit, digest)
        await asyncio.to_thread(self._own.verified.remember, self._own.blobs.path(digest), digest)
        return True

    def create(self, creation: Creation) -> AsyncIterator[Status]:
        """Make a model; yields ``{"status"}`` up to ``success``. Raises as :meth:`Maker.make`; INVALID_ARG at once."""
        check_creation(creation)
        return self._jobs.follow(object(), lambda report: self._maker.make(creation, report))

    def pull(
        self, source: str, name: str | None = None, *, insecure: bool = False, local: bool = False
    ) -> AsyncIterator[Status]:
        """Fetch a model; yields Ollama's statuses with ``digest``, ``total`` and ``completed`` up to ``success``.

        ``source`` is the name of a model or ``hf:``, ``https:``, ``oci:``, ``pypi:``, and with ``local``
        ``file:`` (see ``source.py``); ``name`` is what it is called here. Who asks for what is on its way
        already follows that. Raises INVALID_ARG at once; while iterating NOT_FOUND, UNAVAILABLE
        (``pull model manifest: ...``) and INTERNAL (disk full); then nothing is visible that was not before.
        """
        where = parse_source(source, insecure=insecure)
        if where.kind == "file" and not local:
            raise invalid_arg("a file of this machine is taken in by 'bident pull' or 'bident create', not by its API")
        target = ModelName.parse(name) if name else destination(where)
        return self._jobs.follow(("pull", target.key, where), lambda report: self._puller.pull(where, target, report))

    def push(self, name: str, *, insecure: bool = False) -> AsyncIterator[Status]:
        """Send a model to the registry that its name begins with. Raises NOT_FOUND, INVALID_ARG, UNAVAILABLE."""
        target = ModelName.parse(name)
        return self._jobs.follow(object(), lambda report: self._pusher.push(target, insecure, report))

    def _tidy(self, prune: bool) -> None:
        self._own.blobs.sweep()
        if prune and self._own.root.is_dir():
            self._own.prune(PRUNED_AFTER_S)

    def _find(self, name: str | ModelName) -> TextModel:
        wanted = ModelName.parse(name) if isinstance(name, str) else name
        for shelf in self._shelves:
            model = shelf.find(wanted)
            if model is None:
                continue
            if model.fault:
                raise ServeError(Code.INTERNAL, f"model '{model.name.short}' cannot be used: {model.fault}")
            return model
        raise self._own.not_found(name if isinstance(name, str) else name.short)

    def _models(self) -> list[TextModel]:
        found: dict[str, TextModel] = {}
        for shelf in self._shelves:
            for model in shelf.models():
                found.setdefault(model.name.key, model)
        return sorted(found.values(), key=lambda model: model.modified_at, reverse=True)

    def _verify(self, model: TextModel) -> None:
        try:
            for path in (model.weights, model.projector, *model.adapters):
                if path is not None and path.name.startswith("sha256-"):  # a bare file does not say what it should be
                    self._own.verified.check(path, parse_digest(path.name))
        except FileNotFoundError as error:
            raise ServeError(Code.NOT_FOUND, f"the file {error.filename} of '{model.name}' is missing") from error

    def _copy(self, source: str, destination: str) -> None:
        target = ModelName.parse(destination)
        wanted = ModelName.parse(source)
        for shelf in self._libraries:
            found = shelf.manifest_of(wanted)
            if found is not None:
                _, manifest = found
                with self._own.blobs.holding() as held:
                    self._own.adopt(manifest, shelf, held)
                    self._own.commit(target, manifest)
                return
        self._maker.make(Creation(name=target, base=source), Report(_unheard))

    def _delete(self, name: str) -> TextModel | None:
        wanted = ModelName.parse(name)
        removed = self._own.find(wanted)
        if self._own.remove(wanted):
            return removed
        model = next((model for shelf in self._shelves if (model := shelf.find(wanted))), None)
        if model is None:
            raise self._own.not_found(name)
        raise invalid_arg(
            f"model '{name}' is not Bident's to remove: it is served in place from {model.weights.parent}; "
            "remove it with the program that it belongs to"
        )


def _unheard(status: Status) -> None:
    """Where a step is told that nobody follows."""
