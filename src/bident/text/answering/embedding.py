"""Texts to vectors: cut to what the model reads, in batches, normalised and shortened as they were asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bident.errors import Code, ServeError, invalid_arg
from bident.text.answering.asked import Server
from bident.text.answering.fitting import check_size
from bident.text.answering.tokens import tokenize
from bident.wire.text import Embeddings, EmbedRequest, Usage

PATH = "/v1/embeddings"
_BATCH = 64
"""Texts for one request to the server: what others ask for in between does not wait for hundreds."""
_MOST_INPUTS = 8192
_SPECIAL_BYTES = 8
"""More than the special tokens around any text."""


async def embed(request: EmbedRequest, server: Server) -> Embeddings:
    """One vector for each input, in their order.

    Raises INVALID_ARG for an input that is too long where ``truncate`` is not wanted, for an empty one, for
    ``dimensions`` that the model does not have, and for a vector that is no number anywhere (NaN).
    """
    if len(request.inputs) > _MOST_INPUTS:
        raise invalid_arg(f"input has {len(request.inputs)} texts, {_MOST_INPUTS} are the most in one request")
    inputs: list[tuple[str | list[int], int]] = []
    for place, text in enumerate(request.inputs):
        inputs.append(await _input(text, place, request, server))
    vectors: list[list[float]] = []
    tokens = 0
    for start in range(0, len(inputs), _BATCH):
        batch, taken = await _vectors(inputs[start : start + _BATCH], start, request, server)
        vectors.extend(batch)
        tokens += taken
    cut = sum(removed for _, removed in inputs)
    usage = Usage(
        prompt_tokens=tokens,
        load_ns=server.load_ns,
        context_length=server.context_length,
        truncated_tokens=cut,
    )
    return Embeddings(vectors, usage)


async def _input(
    text: str | Sequence[int], place: int, request: EmbedRequest, server: Server
) -> tuple[str | list[int], int]:
    """The input as it is sent, and how many tokens it lost."""
    if not len(text):
        raise invalid_arg(f"input {place} is empty: there is nothing to embed")
    limit = server.context_length
    if not limit or not server.is_native:
        return (text if isinstance(text, str) else list(text)), 0
    if isinstance(text, str):
        if len(text.encode()) + _SPECIAL_BYTES <= limit:
            return text, 0
        check_size(len(text.encode()), limit)
        tokens = await tokenize(server, text)
        bare = await tokenize(server, text, add_special=False) if len(tokens) > limit else tokens
        ending = tokens[-1:] if bare[-1:] != tokens[-1:] else []
    else:
        tokens, ending = list(text), []
    if len(tokens) <= limit:
        return (text if isinstance(text, str) else tokens), 0
    if not request.truncate:
        raise invalid_arg(
            f"the input length exceeds the context length: input {place} has {len(tokens)} tokens, {limit} are the "
            "most; shorten it, or allow truncate"
        )
    # The token that marks the end of a text stays: models look for it.
    return tokens[: limit - len(ending)] + ending, len(tokens) - limit


async def _vectors(
    batch: Sequence[tuple[str | list[int], int]], first: int, request: EmbedRequest, server: Server
) -> tuple[list[list[float]], int]:
    payload: dict[str, Any] = {"input": [text for text, _ in batch], "encoding_format": "float"}
    if not server.is_native:
        payload["model"] = server.model
    answer = await server.asked.ask(PATH, payload)
    try:
        found = sorted(answer["data"], key=lambda item: item["index"])
        matrix = np.array([item["embedding"] for item in found], dtype=np.float64)
        tokens = int((answer.get("usage") or {}).get("prompt_tokens") or 0)
    except (KeyError, TypeError, ValueError) as error:
        raise ServeError(Code.INTERNAL, f"the model's server sent what are no embeddings: {error!r}") from None
    if matrix.ndim != 2 or len(matrix) != len(batch):
        raise ServeError(Code.INTERNAL, f"the model's server sent {len(matrix)} embeddings for {len(batch)} inputs")
    broken = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if broken.size:
        raise invalid_arg(f"input {first + int(broken[0])} has no embedding: the model gives NaN for it")
    return _shaped(matrix, request).tolist(), tokens


def _shaped(matrix: NDArray[np.float64], request: EmbedRequest) -> NDArray[np.float64]:
    """``matrix`` [texts, dimensions] cut to the dimensions that were asked for; each row of length 1, if wanted."""
    width = matrix.shape[1]
    if request.dimensions > width:
        raise invalid_arg(f"dimensions is {request.dimensions}, the model has {width}")
    if request.dimensions:
        matrix = matrix[:, : request.dimensions]
    if not request.normalise:
        return matrix
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix / np.where(lengths > 0, lengths, math.inf)
