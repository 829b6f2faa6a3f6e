"""Documents by how well they answer a query, by llama.cpp's ``/v1/rerank``."""

from __future__ import annotations

from bident.errors import Code, ServeError, invalid_arg
from bident.text.answering.asked import Server
from bident.text.answering.fitting import check_size
from bident.text.answering.tokens import tokenize
from bident.wire.text import Ranked, RerankRequest

PATH = "/v1/rerank"
_SPECIAL_TOKENS = 4
"""Around the two texts of a pair and between them, at most."""


async def rerank(request: RerankRequest, server: Server) -> list[Ranked]:
    """The best of the request's documents, best first; those of the same score in their own order."""
    if not request.documents:
        return []
    if server.is_native and server.context_length:
        await _check_lengths(request, server)
    payload = {"query": request.query, "documents": list(request.documents), "model": server.model}
    answer = await server.asked.ask(PATH, payload)
    try:
        ranked = [Ranked(int(item["index"]), float(item["relevance_score"])) for item in answer["results"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ServeError(Code.INTERNAL, f"the model's server sent what is no ranking: {error!r}") from None
    ranked.sort(key=lambda item: (-item.score, item.index))
    return ranked[: request.top or len(ranked)]


async def _check_lengths(request: RerankRequest, server: Server) -> None:
    """Raise INVALID_ARG for a pair that the model cannot read at once: a score of a part would be another's."""
    limit = server.context_length - _SPECIAL_TOKENS
    query = request.query.encode()
    query_tokens = -1
    for place, document in enumerate(request.documents):
        size = len(query) + len(document.encode())
        if size <= limit:  # no token is shorter than a byte
            continue
        check_size(size, server.context_length)
        if query_tokens < 0:
            query_tokens = len(await tokenize(server, request.query, add_special=False))
        tokens = query_tokens + len(await tokenize(server, document, add_special=False))
        if tokens > limit:
            raise invalid_arg(
                f"the input length exceeds the context length: query and document {place} have {tokens} tokens "
                f"together, {limit} are the most; shorten them, or cut the document in parts"
            )
