"""Bodies and heads: every way to send them, and how much of them is taken."""

from __future__ import annotations

import pytest
from http_line import Line, chunked, get, post

from bident.doors.http.limits import HttpLimits

SMALL = HttpLimits(head_bytes=1024, json_bytes=1000, binary_bytes=3000, small_body=500)


@pytest.mark.parametrize("body", [b"", b"x", b"a" * 5000, bytes(range(256)) * 300])
@pytest.mark.parametrize("sizes", [0, 1, 7, 4096])
def test_a_body_of_declared_length(body: bytes, sizes: int) -> None:
    line = Line()
    line.send(post("/echo", body) + get("/now/2"), sizes=sizes)
    assert [answer.body for answer in line.answers()] == [body, b"[2]"]


@pytest.mark.parametrize("chunks", [(), (b"x",), (b"ab", b"c" * 300, b"\r\n\r\n0\r\n\r\n")])
def test_a_chunked_body_cut_at_every_byte(chunks: tuple[bytes, ...]) -> None:
    request = chunked("/echo", *chunks, trailers=("X-Check: 1",)) + get("/now/2")
    for cut in range(1, len(request)):
        line = Line()
        line.send(request[:cut])
        line.send(request[cut:])
        assert [answer.body for answer in line.answers()] == [b"".join(chunks), b"[2]"], cut


def test_chunk_extensions_are_ignored() -> None:
    line = Line()
    head = get("/echo", "Transfer-Encoding: Chunked", method="POST")
    line.send(head + b'3;name=value;other="quoted"\r\nabc\r\n0;last\r\n\r\n')
    assert line.answers()[0].body == b"abc"


def test_trailers_are_not_headers() -> None:
    """A proxy filters headers; what it lets through as a trailer must not count as one."""
    line = Line()
    trailers = ("Content-Encoding: gzip", "Inference-Header-Content-Length: 0", "Host: elsewhere", "Expect: x")
    line.send(chunked("/echo", b"abc", trailers=trailers) + chunked("/echo", b"def"))
    assert [answer.body for answer in line.answers()] == [b"abc", b"def"]
    for exchange in line.server.echoed:
        assert exchange.headers == {b"host": b"here", b"transfer-encoding": b"chunked"}


def test_chunks_from_http_1_0_end_the_connection() -> None:
    line = Line()
    request = chunked("/echo", b"abc", headers=("Connection: keep-alive",)).replace(b"HTTP/1.1", b"HTTP/1.0")
    line.send(request)
    assert line.answers()[0].headers[b"connection"] == b"close"
    assert line.is_closed


def test_a_body_may_have_as_many_chunks_as_bytes() -> None:
    line = Line()
    line.send(chunked("/echo", *[b"x"] * 100_000))
    assert line.answers()[0].body == b"x" * 100_000
    assert not line.is_closed


@pytest.mark.parametrize("framing", [b"1;" + b"e" * 5000, b"1\r\nx\r\n0\r\nTrailer: " + b"t" * 5000])
def test_what_surrounds_a_chunk_is_bounded(framing: bytes) -> None:
    line = Line(limits=SMALL)
    line.send(get("/echo", "Transfer-Encoding: chunked", method="POST") + framing, sizes=100)
    (answer,) = line.answers()
    assert answer.status == 400
    assert b"trailers and chunk extensions" in answer.body


class TestBodyLimits:
    def test_declared_and_too_large_is_refused_before_it_comes(self) -> None:
        line = Line(limits=SMALL)
        line.send(post("/echo", b"x" * 1000))
        line.send(get("/echo", "Content-Length: 1001", method="POST"))
        assert line.statuses() == [200, 413]
        assert b"1001 bytes exceeds the maximum allowed value of 1000 bytes" in line.answers()[1].body
        assert b"--http-max-input-size" in line.answers()[1].body
        assert line.transport.eof_written

    def test_chunked_and_too_large_is_refused_at_the_byte_too_many(self) -> None:
        line = Line(limits=SMALL)
        line.send(chunked("/echo", b"x" * 600, b"y" * 400))
        line.send(chunked("/echo", b"x" * 600, b"y" * 401)[: -len(b"\r\n0\r\n\r\n")])
        assert line.statuses() == [200, 413]

    def test_binary_bodies_have_their_own_limit(self) -> None:
        line = Line(limits=SMALL)
        line.send(post("/binary", b"x" * 3000, "Inference-Header-Content-Length: 10"))
        assert line.statuses() == [200]
        line.send(get("/binary", "Inference-Header-Content-Length: 10", "Content-Length: 3001", method="POST"))
        assert line.answers()[1].status == 413
        assert line.answers()[1].body == b'{"error":"request body of 3001 bytes exceeds the maximum of 3000 bytes"}'

    def test_the_header_of_the_binary_extension_raises_no_other_limit(self) -> None:
        line = Line(limits=SMALL)
        line.send(get("/echo", "Inference-Header-Content-Length: 10", "Content-Length: 1001", method="POST"))
        assert line.statuses() == [413]

    @pytest.mark.parametrize("length", [2**31, 3_282_758_843, 2**32 + 5, 2**63])
    @pytest.mark.parametrize("headers", [(), ("Inference-Header-Content-Length: 187",)])
    def test_huge_lengths_are_refused_at_once_with_plain_numbers(self, length: int, headers: tuple[str, ...]) -> None:
        line = Line()
        line.send(get("/binary", *headers, f"Content-Length: {length}", method="POST"))
        (answer,) = line.answers()
        assert answer.status == 413
        assert str(length).encode() in answer.body
        assert b"-" not in answer.body.replace(b"--http-max-input-size", b"")

    def test_what_leads_nowhere_may_not_bring_much(self) -> None:
        line = Line(limits=SMALL)
        line.send(post("/nowhere", b"x" * 500) + get("/now/1", "Content-Length: 501", method="POST"))
        assert line.statuses() == [404, 405]
        assert line.answers()[1].headers[b"allow"] == b"GET, HEAD"
        assert line.is_closed

    def test_tiny_pieces_of_a_body_weigh_no_more_than_it(self) -> None:
        line = Line()
        line.send(get("/echo", "Content-Length: 20000", method="POST"))
        line.send(b"x" * 19999, sizes=1)
        assert len(line.connection._reader._pieces) < 100
        line.send(b"y")
        assert line.answers()[0].body == b"x" * 19999 + b"y"


class TestHeadLimits:
    @pytest.mark.parametrize("sizes", [0, 100])
    @pytest.mark.parametrize(
        "head",
        [
            get("/now/1?" + "x" * 1100),
            get("/now/1", "X: " + "x" * 1100),
            get("/now/1", "X" * 1100 + ": x"),
            get("/now/1", *[f"X-{number}: x" for number in range(150)]),
        ],
    )
    def test_a_large_head_is_refused(self, head: bytes, sizes: int) -> None:
        line = Line(limits=SMALL)
        line.send(head, sizes=sizes)
        (answer,) = line.answers()
        assert answer.status == 431
        assert b"1024 bytes (--http-max-header-size)" in answer.body
        assert line.is_closed

    @pytest.mark.parametrize("endless", [b"GET /", b"GET / HTTP/1.1\r\nX", b"GET / HTTP/1.1\r\nX: "])
    def test_an_endless_one_is_refused_before_its_end(self, endless: bytes) -> None:
        line = Line(limits=SMALL)
        line.send(endless)
        sent = len(endless)
        while not line.transport.written:
            line.send(b"x" * 100)
            sent += 100
            assert sent < 1300
        assert line.statuses() == [431]

    def test_a_head_just_small_enough_is_taken_even_with_much_after_it(self) -> None:
        line = Line(limits=SMALL)
        line.send(get("/now/1", "X: " + "x" * 900) + post("/echo", b"z" * 1000))
        assert line.statuses() == [200, 200]


class TestExpect:
    HEADERS = ("Expect: 100-continue", "Content-Length: 3")

    def test_the_client_is_told_to_go_on(self) -> None:
        line = Line()
        line.send(get("/echo", *self.HEADERS, method="POST"))
        assert line.statuses() == [100]
        line.send(b"abc" + get("/now/1"))
        assert line.statuses() == [100, 200, 200]

    def test_not_before_the_answers_it_waits_for(self) -> None:
        line = Line()
        line.send(get("/later") + get("/echo", *self.HEADERS, method="POST"))
        assert line.statuses() == []
        line.server.seen[0].respond_json(b"{}")
        assert line.statuses() == [200, 100]
        line.send(b"abc")
        assert line.statuses() == [200, 100, 200]

    def test_http_1_0_knows_no_interim_answers(self) -> None:
        line = Line()
        line.send(get("/echo", *self.HEADERS, version="1.0", method="POST"))
        assert line.statuses() == []
        line.send(b"abc")
        assert line.statuses() == [200]

    @pytest.mark.parametrize(
        ("path", "length", "status"), [("/nowhere", 3, 404), ("/now/1", 3, 405), ("/echo", 2**40, 413)]
    )
    def test_what_is_refused_anyway_is_refused_at_once(self, path: str, length: int, status: int) -> None:
        line = Line()
        line.send(get(path, "Expect: 100-continue", f"Content-Length: {length}", method="POST"))
        (answer,) = line.answers()
        assert answer.status == status
        assert answer.headers[b"connection"] == b"close"
        assert answer.headers.get(b"allow") == (b"GET, HEAD" if status == 405 else None)
        assert line.is_closed

    def test_other_expectations(self) -> None:
        line = Line()
        line.send(post("/echo", b"{}", "Expect: miracles"))
        (answer,) = line.answers()
        assert answer.status == 417
        assert b"'miracles'" in answer.body

    def test_while_draining_the_connection_lasts_until_the_final_answer(self) -> None:
        line = Line()
        line.server.is_draining = True
        line.send(get("/echo", *self.HEADERS, method="POST"))
        assert line.statuses() == [100]
        assert not line.is_closed
        line.send(b"abc")
        assert line.statuses() == [100, 200]
        assert line.is_closed
