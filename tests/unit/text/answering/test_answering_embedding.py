"""Texts to vectors, and documents by rank."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from answering_site import ScriptedServer, model

from bident.errors import Code, ServeError
from bident.text.answering.embedding import embed
from bident.text.answering.gate import check_answerable, check_embeds, check_ranks
from bident.text.answering.ranking import rerank
from bident.wire.text import Embeddings, EmbedRequest, Message, RerankRequest, TextRequest


def vectors(payload: dict[str, Any]) -> dict[str, Any]:
    """Vectors that tell the input's length, in the wrong order."""
    data = [{"index": place, "embedding": [3.0, 4.0, float(len(text))]} for place, text in enumerate(payload["input"])]
    return {"data": data[::-1], "usage": {"prompt_tokens": len(data)}}


def embedded(inputs: list[Any], context_length: int = 512, **asked: Any) -> tuple[Embeddings, ScriptedServer]:
    site = ScriptedServer()
    site.answers = {"/v1/embeddings": asked.pop("answer", vectors)}
    request = EmbedRequest(model="m", inputs=inputs, **asked)
    return asyncio.run(embed(request, site.native(context_length))), site


def test_three_hundred_inputs_keep_their_order_and_go_in_batches() -> None:
    answer, site = embedded(["x" * (place + 1) for place in range(300)], normalise=False)

    assert [vector[2] for vector in answer.vectors] == list(range(1, 301))
    assert [len(payload["input"]) for _, payload in site.asked] == [64, 64, 64, 64, 44]
    assert answer.usage.prompt_tokens == 300


def test_vectors_are_cut_and_of_length_one() -> None:
    answer, _ = embedded(["a"], dimensions=2)
    assert answer.vectors == [[0.6, 0.8]]

    whole, _ = embedded(["a"])
    assert math.isclose(sum(value**2 for value in whole.vectors[0]), 1)

    zero, _ = embedded(["a"], answer={"data": [{"index": 0, "embedding": [0.0, 0.0]}]})
    assert zero.vectors == [[0.0, 0.0]]

    with pytest.raises(ServeError, match="dimensions is 4, the model has 3"):
        embedded(["a"], dimensions=4)


def test_long_texts_are_cut_and_their_last_token_stays() -> None:
    def tokens(payload: dict[str, Any]) -> dict[str, Any]:
        words = [*range(len(payload["content"].split()))]
        return {"tokens": [101, *words, 102] if payload["add_special"] else words}

    site = ScriptedServer()
    site.answers = {"/v1/embeddings": vectors, "/tokenize": tokens}
    request = EmbedRequest(model="m", inputs=["word " * 20, "short", [*range(30)]])

    answer = asyncio.run(embed(request, site.native(16)))

    sent = site.asked[-1][1]["input"]
    assert sent == [[101, *range(14), 102], "short", [*range(16)]]
    assert answer.usage.truncated_tokens == 6 + 14

    request.truncate = False
    with pytest.raises(ServeError, match="the input length exceeds the context length: input 0 has 22 tokens, 16"):
        asyncio.run(embed(request, site.native(16)))


@pytest.mark.parametrize(
    ("answer", "code", "problem"),
    [
        ({"data": [{"index": 0, "embedding": [None, 1.0]}]}, Code.INVALID_ARG, "NaN"),
        ({"data": []}, Code.INTERNAL, "embeddings for 1 inputs"),
        ({"data": [{"index": 0, "embedding": "x"}]}, Code.INTERNAL, "no embeddings"),
        ({}, Code.INTERNAL, "no embeddings"),
    ],
)
def test_what_is_no_vector_is_an_error(answer: Any, code: Code, problem: str) -> None:
    with pytest.raises(ServeError, match=problem) as caught:
        embedded(["a"], answer=answer)

    assert caught.value.code is code


def test_inputs_that_cannot_be_embedded() -> None:
    with pytest.raises(ServeError, match="input 1 is empty"):
        embedded(["a", ""])
    with pytest.raises(ServeError, match="8192 are the most"):
        embedded(["a"] * 8193)


def test_documents_by_rank() -> None:
    results = [{"index": place, "relevance_score": score} for place, score in enumerate([0.1, 0.9, 0.9])]
    site = ScriptedServer()
    site.answers = {"/v1/rerank": {"results": results}}

    async def ranked(documents: list[str], top: int = 0) -> list[int]:
        request = RerankRequest(model="m", query="q", documents=documents, top=top)
        return [item.index for item in await rerank(request, site.native())]

    assert asyncio.run(ranked(["a", "b", "c"])) == [1, 2, 0]
    assert asyncio.run(ranked(["a", "b", "c"], top=2)) == [1, 2]
    assert asyncio.run(ranked([])) == []


def test_a_model_is_asked_for_what_it_can_do() -> None:
    hi, png = [Message("user", "hi")], b"\x89PNG\r\n\x1a\n"
    tool = {"function": {"name": "f"}}
    cases = [
        (
            TextRequest(model="M", messages=hi, tools=[tool]),
            "m:latest does not support tools",
        ),
        (TextRequest(model="M", messages=hi, think=True), '"M" does not support thinking'),
        (TextRequest(model="M", prompt="a", suffix="b"), '"M" does not support insert'),
        (TextRequest(model="M", prompt="a", images=[png]), '"M" does not support vision'),
        (TextRequest(model="M", messages=hi, count=1000), "n is 1000"),
    ]
    for request, problem in cases:
        with pytest.raises(ServeError) as caught:
            check_answerable(model(), request)
        assert caught.value.message.startswith(problem)
    check_answerable(model(), TextRequest(model="M", messages=hi, think=False))
    check_answerable(model(), TextRequest(model="M", prompt="a", tools=[tool], template="{{ .Tools }}"))

    bert = model(capabilities=frozenset({"embedding"}))
    with pytest.raises(ServeError, match='"M" does not support chat: it is for embedding'):
        check_answerable(bert, TextRequest(model="M", messages=hi))
    check_embeds(bert, "M")
    with pytest.raises(ServeError, match="does not support embeddings"):
        check_embeds(model(), "M")
    with pytest.raises(ServeError, match='"M" does not support rerank'):
        check_ranks(bert, "M")
