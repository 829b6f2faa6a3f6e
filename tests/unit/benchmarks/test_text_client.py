"""The benchmarks' client of text streams, against a server that says what each test wants."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from benchmarks.text_client import Crowd, Stream, crowd, stream

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"
ROLE = b'data: {"delta":{"role":"assistant","content":null}}\n\n'
TEXT = b'data: {"delta":{"content":"Once"}}\n\n'
COUNT = b'data: {"usage":{"completion_tokens":7}}\n\n'


@dataclass
class Scripted:
    """Answers every connection with ``parts``; before a callable among them is called, the others have been sent."""

    parts: list[bytes | Callable[[], object]]
    headers: tuple[str, ...] = ("X-Mark: yes",)
    asked: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            request = b""
            while not request.endswith(b"}"):
                request += connection.recv(4096)
            self.asked.append(request)
            for part in self.parts:
                if callable(part):
                    part()
                else:
                    connection.sendall(part)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Scripted]]:
    servers: list[Scripted] = []

    def make(*parts: bytes | Callable[[], object]) -> Scripted:
        servers.append(Scripted(list(parts)))
        return servers[-1]

    yield make
    for server in servers:
        server.close()


def test_tokens_are_those_the_server_counted(serve) -> None:
    server = serve(HEAD, ROLE, TEXT, TEXT, COUNT)
    assert stream(server, "/v1/chat/completions", {"model": "m"}).tokens == 7
    assert b"POST /v1/chat/completions HTTP/1.1\r\n" in server.asked[0]
    assert b"\r\nX-Mark: yes\r\n" in server.asked[0]


def test_ollamas_count_is_read_too(serve) -> None:
    server = serve(HEAD, b'{"message":{"content":"Once"}}\n', b'{"message":{"content":""},"eval_count":3}\n')
    assert stream(server, "/api/chat", {}).tokens == 3


def test_a_crowd_asks_all_at_once(serve) -> None:
    everybody = threading.Barrier(4, timeout=10)
    # Nobody is answered before all four have asked.
    found = crowd(serve(HEAD, ROLE, everybody.wait, TEXT, COUNT), "/", [{}] * 4)
    assert [each.tokens for each in found.streams] == [7] * 4
    assert all(0 < each.first_seconds <= each.seconds <= found.seconds for each in found.streams)


@pytest.mark.parametrize("parts", [(b"HTTP/1.1 503 No\r\n\r\n", TEXT, COUNT), (HEAD, ROLE, COUNT), (HEAD, TEXT)])
def test_an_answer_without_status_text_or_count_is_none(serve, parts: tuple[bytes, ...]) -> None:
    with pytest.raises(RuntimeError, match="answered"):
        stream(serve(*parts), "/", {})


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_crowd_with_a_failed_answer_counts_for_nothing(serve) -> None:
    with pytest.raises(RuntimeError, match="2 of 2 answers failed"):
        crowd(serve(HEAD), "/", [{}, {}])


def test_a_crowd_is_as_fast_as_all_of_it_and_as_slow_as_its_last() -> None:
    found = Crowd((Stream(0.1, 1.0, 30), Stream(0.9, 2.0, 50)), seconds=2.0)
    assert found.tokens_per_second == 40
    assert found.worst_first_seconds == 0.9
