"""Documents by how well they answer a query, by llama.cpp's ``/v1/rerank``."""

from __future__ import annotations

from bident.errors import Code, ServeError
from bident.text.answering.asked import Server
from bident.wire.text import Ranked, RerankRequest

PATH = "/v1/rerank"


async def rerank(request: RerankRequest, server: Server) -> list[Ranked]:
    """The best of the request's documents, best first; those of the same score in their own order."""
    if not request.documents:
        return []
    payload = {"query": request.query, "documents": list(request.documents), "model": server.model}
    answer = await server.asked.ask(PATH, payload)
    try:
        ranked = [Ranked(int(item["index"]), float(item["relevance_score"])) for item in answer["results"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ServeError(Code.INTERNAL, f"the model's server sent what is no ranking: {error!r}") from None
    ranked.sort(key=lambda item: (-item.score, item.index))
    return ranked[: request.top or len(ranked)]
