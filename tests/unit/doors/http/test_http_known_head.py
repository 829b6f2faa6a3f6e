"""A head that repeats is recognised; the requests are the same as if it had been parsed each time."""

from __future__ import annotations

import pytest
from http_line import Line, LineServer, get, post
from hypothesis import given, settings
from hypothesis import strategies as st

from bident.doors.http import reader
from bident.doors.http.limits import HttpLimits


class CountingReader(reader.RequestReader):
    __slots__ = ("parsed",)

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.parsed = 0

    def feed(self, data: bytes | memoryview) -> None:
        self.parsed += 1
        super().feed(data)


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Line:
    monkeypatch.setattr("bident.doors.http.protocol.RequestReader", CountingReader)
    return Line(limits=HttpLimits(json_bytes=2000))


def parsed(line: Line) -> int:
    return line.connection._reader.parsed  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize(
    "headers",
    [(), ("Connection: keep-alive", "X: Content-Length: 7"), ("content-LENGTH-not: 1", "Accept: */*")],
)
def test_only_the_first_is_parsed(line: Line, headers: tuple[str, ...]) -> None:
    bodies = [b"x" * size for size in (9, 9, 10, 0, 999, 1000, 1, 9)]
    for body in bodies:
        line.send(post("/echo", body, *headers))
    assert parsed(line) == 1
    assert [answer.body for answer in line.answers()] == bodies
    lengths = [exchange.headers[b"content-length"] for exchange in line.server.echoed]
    assert lengths == [b"%d" % len(body) for body in bodies]
    assert all(exchange.received_ns for exchange in line.server.echoed)


def test_the_length_may_stand_anywhere_and_have_spaces(line: Line) -> None:
    for body in (b"x", b"yy"):
        line.send(b"POST /echo HTTP/1.1\r\nContent-Length: \t %d\r\nHost: here\r\n\r\n" % len(body) + body)
    assert parsed(line) == 1
    assert [answer.body for answer in line.answers()] == [b"x", b"yy"]


@pytest.mark.parametrize(
    "other",
    [
        post("/echo", b"{}", "X: y"),
        post("/later", b"{}"),
        post("/echo", b"{}").replace(b"Host", b"HOST"),
        get("/now/1"),
        post("/echo", b"{}") + get("/now/1"),
        post("/echo", b"{}")[:-1],
        get("/echo", "Content-Length: 02", method="POST") + b"{}",
        get("/echo", "Content-Length: 2 ", method="POST") + b"{}",
        get("/echo", "Content-Length: +2", method="POST") + b"{}",
    ],
)
def test_anything_else_is_parsed(line: Line, other: bytes) -> None:
    for _ in range(2):
        line.send(post("/echo", b"{}"))
    before = parsed(line)
    line.send(other)
    assert parsed(line) > before


def test_a_known_head_raises_no_limit(line: Line) -> None:
    line.send(post("/echo", b"x"))
    line.send(post("/echo", b"x" * 2000))
    line.send(post("/echo", b"x" * 2001))
    assert line.statuses() == [200, 200, 413]


def test_it_does_not_start_in_the_middle_of_a_request(line: Line) -> None:
    line.send(post("/echo", b"{}"))
    inner = post("/echo", b"{}")
    whole = post("/echo", inner)
    line.send(whole[: -len(inner)])
    line.send(inner)
    assert [answer.body for answer in line.answers()] == [b"{}", inner]


def test_half_a_method_is_the_middle_of_a_request_too(line: Line) -> None:
    line.send(post("/echo", b"{}"))
    line.send(b"P")
    line.send(post("/echo", b"{}"))
    assert line.statuses() == [200, 400]


@pytest.mark.parametrize(
    "first",
    [post("/echo", b"{}", "Expect: 100-continue"), get("/later"), post("/echo", b"{}", "X: " + "x" * 5000)],
)
def test_what_is_not_worth_or_not_safe_to_know_is_parsed_again(line: Line, first: bytes) -> None:
    line.send(first)
    before = parsed(line)
    line.send(first)
    assert parsed(line) > before


def test_a_client_that_never_repeats_itself_is_not_learnt_from_for_ever(line: Line) -> None:
    for number in range(20):
        line.send(post("/echo", b"{}", f"X-Request: {number}"))
    assert line.connection._reader.known is None
    for _ in range(20):
        line.send(post("/echo", b"{}"))
    assert line.statuses() == [200] * 40


def test_a_client_that_mostly_repeats_itself_is(line: Line) -> None:
    for number in range(50):
        line.send(post("/echo", b"{}", f"X-Round: {number}"))
        line.send(post("/echo", b"{}", f"X-Round: {number}"))
    assert parsed(line) == 50


_BODY = st.binary(max_size=40)
_REQUEST = st.one_of(
    st.builds(post, st.just("/echo"), _BODY),
    st.builds(post, st.just("/echo"), _BODY, st.sampled_from(["X: y", "Connection: keep-alive", "Content-Lengthy: 3"])),
    st.builds(get, st.sampled_from(["/now/1", "/now/2", "/nowhere"])),
    st.just(b"\r\n"),
)


@given(st.lists(_REQUEST, max_size=12))
@settings(deadline=None, max_examples=150)
def test_the_answers_do_not_depend_on_how_requests_are_cut(requests: list[bytes]) -> None:
    """One read a request (heads are recognised), one byte a read (never), one read for all (rarely)."""
    written = set()
    for pieces in (requests, [b"".join(requests)], [bytes([byte]) for byte in b"".join(requests)]):
        line = Line(LineServer())
        for piece in pieces:
            if piece:
                line.send(piece)
        written.add(line.transport.written)
    assert len(written) == 1
