"""The client's errors: each says what happened and what to do."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator

import pytest

from bident.client import Client, model_path
from bident.errors import Code, ServeError


@pytest.fixture
def answering() -> Iterator[list[bytes]]:
    """A socket that answers each connection with the first of these bytes; the last item is its port."""
    answers: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as door:
        answers.append(str(door.getsockname()[1]).encode())

        def serve() -> None:
            while True:
                try:
                    connection, _ = door.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(answers[0])

        thread = threading.Thread(target=serve)
        thread.start()
        yield answers
        door.shutdown(socket.SHUT_RDWR)
        thread.join()


def client(answers: list[bytes], answer: bytes) -> Client:
    port = int(answers[-1])
    answers.insert(0, answer)
    return Client(f"127.0.0.1:{port}")


def http_answer(status: int, body: bytes) -> bytes:
    return f"HTTP/1.1 {status} x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        (http_answer(404, b'{"error":"no such model"}'), Code.NOT_FOUND, "no such model"),
        (http_answer(400, b'{"error":"bad"}'), Code.INVALID_ARG, "bad"),
        (http_answer(503, b'{"error":"later"}'), Code.UNAVAILABLE, "later"),
        (http_answer(501, b'{"error":"never"}'), Code.UNSUPPORTED, "never"),
        (http_answer(500, b'{"error":"oh"}'), Code.INTERNAL, "oh"),
        (http_answer(500, b"[]"), Code.INTERNAL, "answered 500 with something that is not the v2 protocol"),
        (http_answer(502, b"<html>"), Code.INTERNAL, "not the v2 protocol"),
        (http_answer(200, b""), Code.INTERNAL, "not the v2 protocol"),
        (b"", Code.UNAVAILABLE, "broke the connection off"),
        (b"SSH-2.0-x\r\n", Code.UNAVAILABLE, "broke the connection off"),
    ],
)
def test_every_kind_of_answer(answering: list[bytes], answer: bytes, code: Code, message: str) -> None:
    with pytest.raises(ServeError) as caught:
        client(answering, answer).metadata("m")
    assert caught.value.code is code
    assert message in caught.value.message


def test_nobody_answers() -> None:
    nobody = Client("http://127.0.0.1:9")
    assert not nobody.live()
    assert not nobody.ready()
    with pytest.raises(ServeError, match="no server answers at http"):
        nobody.index()


def test_a_server_that_takes_too_long() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        waiting = Client(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.05)
        with pytest.raises(ServeError, match="did not answer in time"):
            waiting.index()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("h:1", "http://h:1"),
        ("http://h/a/", "http://h/a"),
        ("https://h", "https://h"),
        ("http://[::1]:5", "http://[::1]:5"),
    ],
)
def test_addresses(url: str, shown: str) -> None:
    assert Client(url).url == shown


def test_a_prefix_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def request(self: http.client.HTTPConnection, method: str, path: str, *rest: object) -> None:
        seen.append(path)
        raise ConnectionRefusedError

    monkeypatch.setattr(http.client.HTTPConnection, "request", request)
    Client("http://h/triton/").live()
    assert seen == ["/triton/v2/health/live"]


def test_names_are_quoted() -> None:
    assert model_path("a/b c", "3") == "/v2/models/a%2Fb%20c/versions/3"


@pytest.mark.parametrize("url", ["", "http://", "ftp://x", "http://foo bar", "http://a\x7f", "http://x:99999", "x:y"])
def test_what_is_no_address_is_said(url: str) -> None:
    with pytest.raises(ServeError, match=r"expected something like http://127\.0\.0\.1:8000") as caught:
        Client(url)
    assert caught.value.code is Code.INVALID_ARG
