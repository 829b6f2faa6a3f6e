"""The text engine: a request in, the answer's events out, whoever has the model."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from bident.text.answering import embedding, ranking, tokens
from bident.text.answering.answer import Answer
from bident.text.answering.asked import RemoteModel, Server, Upstreams
from bident.text.answering.composing import Composer
from bident.text.answering.fitting import check_size
from bident.text.answering.gate import check_answerable, check_embeds, check_ranks
from bident.text.answering.options import checked_options
from bident.text.figures import Asking, Figures
from bident.text.model import TextModel
from bident.text.runner.residency import Residency
from bident.text.store.library import Library
from bident.wire.text import Embeddings, EmbedRequest, Ranked, RerankRequest, TextEnd, TextEvent, TextRequest, Usage


class TextEngine:
    """Answers requests with the models of ``library``, loaded by ``residency``, and those of ``upstreams``."""

    def __init__(self, library: Library, residency: Residency, upstreams: Upstreams | None = None) -> None:
        self.library = library
        self.residency = residency
        self._upstreams = upstreams
        self.figures = Figures()

    async def answer(self, request: TextRequest) -> AsyncGenerator[TextEvent, None]:
        """The answer in pieces as they come, then its ends. Close it, and its slot is free at once.

        A request that asks for nothing loads the model, or unloads it where it should stay for no time at all.
        Raises NOT_FOUND for the model, INVALID_ARG for what it cannot be asked, UNAVAILABLE when too many
        wait, INTERNAL when the model fails; a failure may come after pieces of the answer.
        """
        if _asks_nothing(request):
            yield await self._only_load(request)
            return
        with self.figures.asking("answer") as asking:
            check = partial(check_answerable, request=request)
            found = self._found(request.model, asking, check, request.options, request.keep_alive)
            async with found as (server, model):
                composer = Composer.of(request, server, model)
                async with contextlib.aclosing(Answer(composer).events()) as events:
                    async for event in events:
                        asking.event(event)
                        yield event

    async def embed(self, request: EmbedRequest) -> Embeddings:
        """One vector for each input. Raises as :meth:`answer`, and INVALID_ARG for a model that is not for this."""
        if not request.inputs:
            return Embeddings([], Usage())
        with self.figures.asking("embed") as asking:
            check = partial(check_embeds, name=request.model)
            found = self._found(request.model, asking, check, request.options, request.keep_alive)
            async with found as (server, _):
                embeddings = await embedding.embed(request, server)
            asking.took(embeddings.usage)
            return embeddings

    async def rerank(self, request: RerankRequest) -> list[Ranked]:
        """The request's documents, best first. Raises as :meth:`embed`."""
        with self.figures.asking("rerank") as asking:
            check = partial(check_ranks, name=request.model)
            async with self._found(request.model, asking, check, {}, request.keep_alive) as (server, _):
                return await ranking.rerank(request, server)

    async def tokenize(
        self, model: str, text: str, *, add_special: bool = True, parse_special: bool = True
    ) -> list[int]:
        """The tokens of ``text``, by the vocabulary of ``model``, which is loaded for it.

        Raises INVALID_ARG for a text that would keep the model's process busy for long.
        """
        async with self._server(model) as server:
            check_size(len(text.encode()), server.context_length)
            return await tokens.tokenize(server, text, add_special=add_special, parse_special=parse_special)

    async def detokenize(self, model: str, sequence: Sequence[int]) -> str:
        """The text of the tokens in ``sequence``. Raises INVALID_ARG for a token that ``model`` does not have."""
        async with self._server(model) as server:
            return await tokens.detokenize(server, sequence)

    async def count_tokens(self, request: TextRequest) -> int:
        """How many tokens the prompt for ``request`` has, with its tools; nothing is left out and nothing answered."""
        model = await self.library.find(request.model)
        check_answerable(model, request)
        async with self._leased(model, request.options, request.keep_alive) as server:
            return await Composer.of(request, server, model).count()

    async def models(self) -> tuple[list[TextModel], list[RemoteModel]]:
        """The models that are answered for: here, and by other servers."""
        inside = await self.library.models()
        if self._upstreams is None:
            return inside, []
        return [each for each in inside if not self.remote(each.name.short)], await self._upstreams.listed()

    def remote(self, model: str) -> RemoteModel | None:
        """Where ``model`` is, if another server answers for it; None where it is the library's."""
        return self._upstreams.remote(model) if self._upstreams else None

    async def load(self, model: str, options: Mapping[str, Any] | None = None, keep_alive: float | None = None) -> int:
        """Load ``model`` if it is not; returns how many nanoseconds that took. Another server loads its own."""
        if self._upstream(model) is not None:
            return 0
        found = await self.library.find(model)
        async with self._leased(found, options or {}, keep_alive) as server:
            return server.load_ns

    async def unload(self, model: str) -> None:
        """Unload ``model`` as soon as nobody uses it. Raises NOT_FOUND."""
        if self._upstream(model) is None:
            await self.residency.unload(await self.library.find(model))

    def _upstream(self, model: str) -> Server | None:
        return self._upstreams.find(model) if self._upstreams else None

    @contextlib.asynccontextmanager
    async def _found(
        self,
        name: str,
        asking: Asking,
        check: Callable[[TextModel], None],
        options: Mapping[str, Any],
        keep_alive: float | None,
    ) -> AsyncIterator[tuple[Server, TextModel | None]]:
        """Who answers for the model called ``name``: another server, or a process of its own, with what it is.

        ``check`` raises where the library's model cannot be asked this; another server says so itself.
        """
        server = self._upstream(name)
        if server is not None:
            asking.found(name)
            yield server, None
            return
        model = await self.library.find(name)
        asking.found(model.name.short)
        check(model)
        async with self._leased(model, options, keep_alive) as server:
            yield server, model

    @contextlib.asynccontextmanager
    async def _server(self, model: str) -> AsyncIterator[Server]:
        server = self._upstream(model)
        if server is not None:
            yield server
            return
        async with self._leased(await self.library.find(model), {}, None) as server:
            yield server

    @contextlib.asynccontextmanager
    async def _leased(
        self, model: TextModel, options: Mapping[str, Any], keep_alive: float | None
    ) -> AsyncIterator[Server]:
        """The model's own process, with a slot in it."""
        wanted = {**model.parameters, **checked_options(options)}
        await self.library.verify(model)
        async with self.residency.lease(model, wanted, keep_alive) as lease:
            yield Server(lease, True, model.name.short, lease.context_length, lease.slots, lease.load_ns)

    async def _only_load(self, request: TextRequest) -> TextEnd:
        if request.keep_alive == 0:
            await self.unload(request.model)
            return TextEnd(reason="unload", usage=Usage())
        load_ns = await self.load(request.model, request.options, request.keep_alive)
        return TextEnd(reason="load", usage=Usage(load_ns=load_ns))


def _asks_nothing(request: TextRequest) -> bool:
    if request.messages is not None:
        return not request.messages
    return not request.prompt and not request.suffix and not request.images
