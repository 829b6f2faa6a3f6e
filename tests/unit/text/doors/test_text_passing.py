"""A real Ollama in the engine's place: bytes go there and come back as they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import orjson
import pytest
from starlette.responses import PlainTextResponse

from bident.text.answering.asked import RemoteModel
from bident.text.doors.bodies import Bodies
from bident.text.doors.passing import Passing, Sorting
from bident.text.doors.routes import application
from bident.text.doors.together import Together
from bident.text.upstream import model_key
from tests.unit.text.doors.scripted_engine import Client, ScriptedEngine, in_parts

URL = "http://ollama.example:11434"


def passed(answer: Callable[[httpx.Request], httpx.Response], **more: Any) -> Client:
    return Client(Passing(URL, transport=httpx.MockTransport(answer), **more))


def test_everything_is_passed_both_ways() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(
            418, headers={"x-theirs": "1", "content-type": "text/x"}, stream=httpx.ByteStream(b"\x00\xffbytes")
        )

    said = passed(answer).post(
        "/api/x%20y?a=1&b=%2F", content=b'{"odd":   1}', headers={"x-mine": "2", "origin": "http://p"}
    )
    assert (said.status_code, said.content, said.headers["x-theirs"]) == (418, b"\x00\xffbytes", "1")
    (request,) = seen
    assert str(request.url) == f"{URL}/api/x%20y?a=1&b=%2F"
    assert (request.method, request.content, request.headers["x-mine"]) == ("POST", b'{"odd":   1}', "2")
    assert request.headers["host"] == "ollama.example:11434"
    assert "origin" not in request.headers


def test_a_request_without_a_body_has_none_there() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, stream=httpx.ByteStream(b"Ollama is running"))

    client = passed(answer)
    assert client.get("/").text == "Ollama is running"
    assert client.head("/").status_code == 200
    assert "transfer-encoding" not in seen[0].headers


def test_uploads_are_passed_in_parts() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(201, stream=httpx.ByteStream(request.content))

    assert passed(answer).post("/api/blobs/sha256:1", content=in_parts(b"a", b"b")).content == b"ab"


def test_our_keys_are_not_for_them() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=httpx.ByteStream(",".join(sorted(request.headers)).encode()))

    headers = {"authorization": "Bearer ours"}
    assert "authorization" in passed(answer).get("/", headers=headers).text
    assert "authorization" not in passed(answer, private=frozenset([b"authorization"])).get("/", headers=headers).text


@pytest.mark.parametrize(
    ("path", "shape"),
    [("/api/chat", "error"), ("/v1/chat/completions", "error"), ("/v1/messages", "request_id")],
)
def test_an_ollama_that_has_gone_is_said_in_the_protocol(path: str, shape: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    said = passed(answer).post(path, json={})
    assert said.status_code == 503
    assert shape in said.json()
    assert URL in said.text


class Breaking(httpx.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b'{"done":false}\n'
        raise httpx.ReadError("cut")


@pytest.mark.parametrize(("kind", "begins"), [("application/x-ndjson", "{"), ("text/event-stream", "data: {")])
def test_a_stream_that_breaks_off_ends_with_an_error(kind: str, begins: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": kind}, stream=Breaking())

    said = passed(answer).post("/api/chat", json={})
    last = said.text.strip().splitlines()[-1]
    assert last.startswith(begins)
    assert "cut" in last


def test_a_client_that_goes_ends_the_asking() -> None:
    async def scene() -> None:
        began, ended, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def answer(request: httpx.Request) -> httpx.Response:
            try:
                began.set()
                await asyncio.Event().wait()
            finally:
                ended.set()
            raise AssertionError

        incoming = [{"type": "http.request", "body": b"{}", "more_body": False}]

        async def receive() -> dict[str, Any]:
            if incoming:
                return incoming.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            raise AssertionError(message)

        scope = {"type": "http", "method": "POST", "path": "/api/chat", "raw_path": b"/api/chat", "query_string": b""}
        scope["headers"] = [(b"content-length", b"2")]
        task = asyncio.ensure_future(Passing(URL, transport=httpx.MockTransport(answer))(scope, receive, send))
        await asyncio.wait_for(began.wait(), 5)
        gone.set()
        await asyncio.wait_for(task, 5)
        assert ended.is_set()

    asyncio.run(scene())


async def _whole(scope: Any, receive: Any, send: Any) -> None:
    """An application that answers the body it gets."""
    message = await receive()
    await PlainTextResponse(b"theirs " + message["body"])(scope, receive, send)


def test_models_are_sorted_by_who_answers_for_them() -> None:
    client = Client(Sorting(PlainTextResponse("ours"), {model_key("theirs"): _whole}, Bodies(1000)))
    for path in ("/api/chat", "/v1/chat/completions"):
        assert client.post(path, content=b'{"model": "theirs:latest"}').text == 'theirs {"model": "theirs:latest"}'
        assert client.post(path, json={"model": "other"}).text == "ours"
    for body in (b"", b"{", b"[]", b'{"model": 1}'):
        assert client.post("/api/chat", content=body).text == "ours"
    assert client.get("/api/tags").text == "ours"
    assert client.post("/api/chat", content=b"x" * 2000).status_code == 413


def test_the_list_of_an_ollama_has_the_models_beside_it() -> None:
    far = RemoteModel("far", "https://other/v1")
    beside = application(ScriptedEngine(elsewhere=[far, RemoteModel("unasked", "x")]), Bodies(1000))  # type: ignore[arg-type]
    theirs = {"models": [{"name": "theirs:latest"}, {"name": "far:latest"}], "more": 1}
    answers = {"/api/tags": (200, orjson.dumps(theirs)), "/v1/models": (500, b"broken")}

    def answer(request: httpx.Request) -> httpx.Response:
        status, said = answers[request.url.path]
        return httpx.Response(status, stream=httpx.ByteStream(said))

    ollama = Passing(URL, transport=httpx.MockTransport(answer))
    client = Client(Together(ollama, beside, {model_key("far"), model_key("smol")}))
    listed = client.get("/api/tags").json()
    assert [each["name"] for each in listed["models"]] == ["theirs:latest", "smol:latest", "far"]
    assert listed["more"] == 1
    assert (client.get("/v1/models").status_code, client.get("/v1/models").text) == (500, "broken")
