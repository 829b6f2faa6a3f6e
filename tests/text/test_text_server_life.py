"""The life of a text server and of its connections: strange clients, crashes, full queues, keys, the end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from text_serving import TextServing

# Without its template, and always the likeliest token: it counts for ever.
LONG: dict[str, Any] = {
    "model": "smollm2",
    "prompt": "one two one two one two one two one two one two",
    "raw": True,
    "options": {"num_predict": 8000, "num_ctx": 8192, "temperature": 0},
}
SHORT = {"model": "smollm2", "prompt": "Hi", "stream": False, "options": {"num_predict": 2}}
DEADLINE = 30.0

Start = Callable[..., TextServing]


@pytest.fixture
def start(tmp_path: Path, smollm2_weights: Path) -> Iterator[Start]:
    """Starts servers of ``smollm2`` with further flags."""
    started: list[TextServing] = []
    weights = tmp_path / "smollm2.gguf"
    weights.symlink_to(smollm2_weights)

    def starting(*flags: str, **more: Any) -> TextServing:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        started.append(TextServing(folder, *flags, files=(weights,), **more))
        return started[-1]

    yield starting
    for server in started:
        if server.process.poll() is None:
            server.stop()


@contextlib.contextmanager
def answering(client: httpx.Client, asked: dict[str, Any]) -> Iterator[Iterator[str]]:
    """The rest of an answer's lines, once the first has come. The connection lives as long as they do."""
    with client.stream("POST", "/api/generate", json=asked) as answer:
        lines = answer.iter_lines()
        next(lines)
        yield lines


def until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def tell(port: int, request: bytes) -> bytes:
    """What a server answers to raw bytes until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), DEADLINE) as connection:
        connection.settimeout(DEADLINE)
        try:
            connection.sendall(request)
            answer = b""
            while part := connection.recv(65536):
                answer += part
        except ConnectionError:  # it had enough before all was sent
            pass
        return answer


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 200_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"a: b\r\n" * 50_000 + b"\r\n",
        b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 TLS",
        b"POST /api/chat HTTP/1.1\r\nhost: localhost\r\ncontent-length: -5\r\n\r\n{}",
        b"POST /api/chat HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /\xff HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ],
    ids=["long header", "many headers", "long path", "TLS", "negative length", "no chunk", "no ASCII"],
)
def test_requests_that_are_none_are_refused_and_closed(serving: TextServing, request_bytes: bytes) -> None:
    answer = tell(serving.port, request_bytes)
    assert answer[:12] in (b"", b"HTTP/1.1 400")
    assert httpx.get(serving.url).text == "Ollama is running"
    assert "Traceback" not in serving.said()


def test_clients_of_http_1_0_get_no_chunks(serving: TextServing) -> None:
    body = json.dumps({**SHORT, "stream": True}).encode()
    head = f"POST /api/generate HTTP/1.0\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
    answer, _, lines = tell(serving.port, head.encode() + body).partition(b"\r\n\r\n")
    assert (b"transfer-encoding" in answer, b"connection: close" in answer) == (False, True)
    *_, last = [json.loads(line) for line in lines.splitlines()]
    assert last["done"] is True
    whole = tell(serving.port, b"GET /api/version HTTP/1.0\r\nhost: localhost\r\n\r\n")
    assert b"content-length: " in whole


def test_a_full_context_ends_the_answer_which_says_so(serving: TextServing) -> None:
    asked = {**LONG, "stream": False, "shift": True, "options": {**LONG["options"], "num_ctx": 64}}
    with serving.client() as client:
        client.post("/api/generate", json={"model": "smollm2", "keep_alive": 0})
        full = client.post("/api/generate", json=asked).json()
        client.post("/api/generate", json={"model": "smollm2", "keep_alive": 0})
        short = client.post("/api/generate", json=SHORT).json()
    assert (full["done_reason"], full["context_full"], full["context_length"]) == ("length", True, 64)
    assert (short["done_reason"], "context_full" in short) == ("length", False)


def test_a_large_body_is_refused_before_it_is_sent(serving: TextServing) -> None:
    head = b"POST /api/chat HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 99999999999\r\n\r\n"
    assert tell(serving.port, head).startswith(b"HTTP/1.1 413")


def test_other_pages_names_are_refused(serving: TextServing) -> None:
    assert httpx.get(serving.url, headers={"host": "evil.example"}).status_code == 403
    assert httpx.get(serving.url, headers={"origin": "http://evil.example"}).status_code == 403
    assert httpx.get(serving.url, headers={"origin": "http://localhost:3000"}).status_code == 200


def test_what_was_left_out_is_said_on_every_route(serving: TextServing) -> None:
    words = "The code word is blue. " + "one two three four five six " * 60
    chat = {"model": "smollm2", "messages": [{"role": "user", "content": words}], "stream": False}
    limits = {"options": {"num_ctx": 256, "num_predict": 1}}
    with serving.client() as client:
        client.post("/api/generate", json={"model": "smollm2", "keep_alive": 0})
        for path in ("/api/chat", "/v1/chat/completions"):
            kept = client.post(path, json={**chat, **limits, "truncate": False})
            shown = client.post(path, json={**chat, **limits})
            for answer in (kept, shown):
                said = answer.json()
                assert answer.status_code == 400 or said.get("truncated_tokens", 0) > 0, said
            assert kept.status_code == 400
            assert "256" in kept.text


def test_a_client_that_goes_frees_its_slot(start: Start) -> None:
    server = start("--num-parallel=1")
    with server.client() as client:
        with answering(client, LONG):
            pass
        began = time.monotonic()
        assert client.post("/api/generate", json=SHORT).status_code == 200
        assert time.monotonic() - began < 10


def test_a_full_queue_is_said_in_ollamas_words(start: Start) -> None:
    server = start("--num-parallel=1", "--max-queue=1")
    statuses: list[tuple[int, str]] = []

    def ask() -> None:
        with server.client() as other:
            said = other.post("/api/generate", json=SHORT)
            statuses.append((said.status_code, said.text))

    askers = [threading.Thread(target=ask) for _ in range(4)]
    with server.client() as client, answering(client, LONG):
        for asker in askers:
            asker.start()
        until(lambda: len(statuses) == 3)
    for asker in askers:
        asker.join(DEADLINE)
    assert sorted(status for status, _ in statuses) == [200, 503, 503, 503]
    refusals = [text for status, text in statuses if status == 503]
    assert all("server busy, please try again.  maximum pending requests exceeded" in text for text in refusals)


def test_a_model_that_dies_ends_its_answer_and_comes_back(start: Start) -> None:
    server = start()
    with server.client() as client:
        with answering(client, LONG) as lines:
            (child,) = psutil.Process(server.process.pid).children()
            child.kill()
            last = [*lines][-1]
        assert "an error was encountered while running the model" in json.loads(last)["error"]
        assert client.post("/api/generate", json=SHORT).json()["done"]


def test_keys(start: Start, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("a-key-of-some-length\n")
    server = start(f"--api-key-file={keys}")
    with server.client() as client:
        assert client.get("/").status_code == 200
        for headers in ({}, {"authorization": "Bearer wrong"}):
            answer = client.get("/v1/models", headers=headers)
            assert (answer.status_code, answer.json()["error"]["type"]) == (401, "authentication_error")
        for headers in ({"authorization": "Bearer a-key-of-some-length"}, {"x-api-key": "a-key-of-some-length"}):
            assert client.get("/v1/models", headers=headers).status_code == 200


def test_answers_are_finished_before_the_end(start: Start) -> None:
    server = start()
    asked = {**LONG, "options": {**LONG["options"], "num_predict": 60}}
    with server.client() as client, answering(client, asked) as lines:
        server.process.terminate()
        until(lambda: "Signal (15) received" in server.said())
        last = json.loads([*lines][-1])
    assert last["done"] is True
    assert server.process.wait(DEADLINE) == 0
    assert not psutil.pid_exists(server.process.pid)


def test_answers_that_take_too_long_are_cut(start: Start) -> None:
    server = start("--exit-timeout-secs=1")
    with server.client() as client, answering(client, LONG) as lines:
        children = psutil.Process(server.process.pid).children()
        server.process.terminate()
        last = [*lines][-1]
        assert server.process.wait(DEADLINE) == 1
    assert "the server is stopping" in json.loads(last)["error"]
    until(lambda: not any(child.is_running() for child in children))
    assert "Traceback" not in server.said()


def test_a_second_signal_ends_it_at_once(start: Start) -> None:
    server = start()
    with server.client() as client, answering(client, LONG):
        server.process.terminate()
        until(lambda: "Signal (15) received" in server.said())
        os.kill(server.process.pid, signal.SIGINT)
        assert server.process.wait(DEADLINE) == 1


def test_a_port_that_is_taken_is_named(start: Start) -> None:
    server = start()
    with pytest.raises(AssertionError, match=rf"text on 127\.0\.0\.1:{server.port} \(already in use\).*--port"):
        start(f"--port={server.port}")


def test_another_ollama_answers_in_its_place(start: Start) -> None:
    behind = start()
    before = start(upstream=f"ollama:{behind.url}")
    asked = {**SHORT, "options": {"num_predict": 4, "seed": 1, "temperature": 0}}
    with behind.client() as there, before.client() as here:
        assert here.get("/api/tags").content == there.get("/api/tags").content
        assert here.post("/api/generate", json=asked).json()["response"]
        assert here.post("/api/chat", json={"model": "nobody", "messages": []}).status_code == 404
        with answering(here, LONG) as lines:
            behind.process.kill()
            last = [*lines][-1]
        assert "does not answer" in json.loads(last)["error"]
        answer = here.post("/v1/chat/completions", json={})
        assert (answer.status_code, "does not answer" in answer.text) == (503, True)


def test_a_model_of_an_openai_compatible_server(start: Start) -> None:
    behind = start()
    before = start(upstream=f"smollm2=openai:{behind.url}/v1")
    chat = {"model": "smollm2", "messages": [{"role": "user", "content": "Hi"}], "options": {"num_predict": 3}}
    with before.client() as client:
        *pieces, last = [json.loads(line) for line in client.post("/api/chat", json=chat).text.splitlines()]
        assert "".join(piece["message"]["content"] for piece in pieces)
        assert (last["done"], last["eval_count"]) == (True, 3)
        assert client.get("/api/ps").json() == {"models": []}  # it is loaded there, not here
        (listed,) = client.get("/api/tags").json()["models"]
        assert (listed["name"], listed["remote_host"]) == ("smollm2", f"{behind.url}/v1")


def test_the_models_of_an_openai_compatible_server(start: Start) -> None:
    behind = start()
    before = start(upstream=f"openai:{behind.url}/v1")
    with before.client() as client:
        (listed,) = client.get("/v1/models").json()["data"]
        assert (listed["id"], listed["owned_by"]) == ("smollm2:latest", f"{behind.url}/v1")
        assert client.post("/api/generate", json={**SHORT, "model": listed["id"]}).json()["done"]
        behind.stop()
        assert client.get("/api/tags").json() == {"models": []}
        assert f"the models of {behind.url}/v1 are not listed" in before.said()
