"""OpenAI-compatible upstreams: which models they have, how they are asked, and what goes wrong with them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from bident.errors import Code, ServeError
from bident.settings.addresses import Upstream
from bident.text import upstream
from bident.text.upstream import OpenaiUpstream, UpstreamModels

URL = "http://llm.example/v1"
PATH = "/v1/chat/completions"


def asking(answer: Callable[[httpx.Request], httpx.Response]) -> OpenaiUpstream:
    return OpenaiUpstream(URL, "secret", transport=httpx.MockTransport(answer))


def streamed(answer: Callable[[httpx.Request], httpx.Response]) -> list[dict[str, Any]]:
    async def scene() -> list[dict[str, Any]]:
        return [event async for event in asking(answer).stream(PATH, {"model": "m"})]

    return asyncio.run(scene())


class Parts(httpx.AsyncByteStream):
    def __init__(self, *parts: bytes | Exception) -> None:
        self.parts = parts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self.parts:
            if isinstance(part, Exception):
                raise part
            yield part


def test_events_however_they_are_cut() -> None:
    seen: list[httpx.Request] = []
    text = b': comment\n\ndata: {"a": 1}\r\n\r\nevent: x\ndata:{"b": "\xc3\xa9"}\n\ndata: [DONE]\n\ndata: {"c": 1}\n\n'

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, stream=Parts(*(text[i : i + 1] for i in range(len(text)))))

    assert streamed(answer) == [{"a": 1}, {"b": "é"}]
    (request,) = seen
    assert str(request.url) == "http://llm.example/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer secret"
    assert json.loads(request.content) == {"model": "m", "stream": True}


@pytest.mark.parametrize(
    ("status", "body", "code", "words"),
    [
        (404, {"error": {"message": "no such model"}}, Code.NOT_FOUND, "no such model"),
        (400, {"error": "bad"}, Code.INVALID_ARG, "bad"),
        (429, {"message": "slow down"}, Code.UNAVAILABLE, "slow down"),
        (401, {"detail": [1]}, Code.INTERNAL, "401"),
        (502, "<html>", Code.INTERNAL, "<html>"),
        (500, [1], Code.INTERNAL, "[1]"),
    ],
)
def test_refusals(status: int, body: Any, code: Code, words: str) -> None:
    content = body if isinstance(body, str) else json.dumps(body)
    with pytest.raises(ServeError, match=r"llm\.example") as raised:
        streamed(lambda request: httpx.Response(status, content=content))
    assert raised.value.code is code
    assert words in raised.value.message
    with pytest.raises(ServeError):
        asyncio.run(asking(lambda request: httpx.Response(status, content=content)).ask(PATH, {}))


@pytest.mark.parametrize(
    "parts",
    [
        (b'data: {"a":1}\n\n', httpx.ReadError("cut")),
        (b'data: {"error": {"message": "died"}}\n\n',),
        (b"data: <html>\n\n",),
        (b"data: [1]\n\n",),
        (b"data: " + b"x" * 2000,),
    ],
)
def test_streams_that_go_wrong(parts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "_LONGEST_LINE", 1000)
    with pytest.raises(ServeError):
        streamed(lambda request: httpx.Response(200, stream=Parts(*parts)))


def test_answers_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "_LARGEST_ANSWER", 1000)
    with pytest.raises(ServeError, match="larger than"):
        asyncio.run(asking(lambda request: httpx.Response(200, content=b"x" * 2000)).ask(PATH, {}))


def test_nobody_there() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(ServeError, match="does not answer") as raised:
        asyncio.run(asking(answer).ask(PATH, {}))
    assert raised.value.code is Code.UNAVAILABLE


def test_who_answers_for_which_model() -> None:
    models = UpstreamModels(
        [Upstream("openai", URL, "a"), Upstream("none", "", "b"), Upstream("openai", "http://all.example")], "key"
    )
    found = {name: models.find(name) for name in ("a", "a:latest", "A", "b", "gpt/x/y/z")}
    urls = {name: server.asked.url for name, server in found.items() if server is not None}  # type: ignore[attr-defined]
    assert urls == {"a": URL, "a:latest": URL, "A": URL, "gpt/x/y/z": "http://all.example"}
    assert found["a:latest"] is not None
    assert (found["a:latest"].model, found["a:latest"].is_native) == ("a", False)
    assert UpstreamModels([Upstream("openai", URL, "a"), Upstream("none")]).find("c") is None


def listing(answer: httpx.Response, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is listed by upstreams for ``a``, ``b`` and ``c``, and a default one that gives ``answer``."""
    transport = httpx.MockTransport(lambda request: answer)
    monkeypatch.setattr(upstream, "OpenaiUpstream", lambda url, key: OpenaiUpstream(url, key, transport))
    named = (Upstream("openai", URL, "a"), Upstream("ollama", "http://o.example", "b"), Upstream("none", "", "c"))
    models = UpstreamModels([*named, Upstream("openai", "http://all.example/v1")])
    return [(each.name, each.url) for each in asyncio.run(models.listed())]


def test_models_elsewhere_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    named = [("a", URL), ("b", "http://o.example")]
    found = {"data": [{"id": "gpt/x"}, {"id": "a:latest"}, {"id": 1}, "c"]}
    assert listing(httpx.Response(200, json=found), monkeypatch) == [*named, ("gpt/x", "http://all.example/v1")]


@pytest.mark.parametrize(
    "answer", [httpx.Response(401), httpx.Response(200, text="<html>"), httpx.Response(200, json={})]
)
def test_a_server_that_lists_nothing_is_left_out(answer: httpx.Response, monkeypatch: pytest.MonkeyPatch) -> None:
    assert listing(answer, monkeypatch) == [("a", URL), ("b", "http://o.example")]


def test_a_server_that_takes_too_long_is_said_to(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def never(request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    transport = httpx.MockTransport(never)
    monkeypatch.setattr(upstream, "OpenaiUpstream", lambda url, key: OpenaiUpstream(url, key, transport))
    monkeypatch.setattr(upstream, "_LIST_SECONDS", 0.01)
    assert asyncio.run(UpstreamModels([Upstream("openai", URL)]).listed()) == []
    assert f"the models of {URL} are not listed: it takes too long" in caplog.text
