"""Nothing is read in two ways: what a proxy may take for one request is never two here, nor the other way round."""

from __future__ import annotations

import pytest
from http_line import Line, chunked, get, post

HIDDEN = post("/later", b"hidden")
"""A request that must never be served: it is part of another one's body."""


@pytest.mark.parametrize(
    "fields",
    [
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5, 5",
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: +5",
        "Content-Length: -5",
        "Content-Length: 0x5",
        "Content-Length: 5_0",
        "Content-Length: \u00b2",
        "Content-Length:",
        "Content-Length: 99999999999999999999999999",
        "Content-Length : 5",
        "Content-Length: 5\r\n 0",
        "Content-Length: 5\nX: y",
        "Content-Length: 5\rX: y",
        "X: a\0b",
        " X: leading space",
        ": no name",
        "no colon",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding:\vchunked",
    ],
)
@pytest.mark.parametrize("sizes", [0, 1])
def test_doubtful_framing_is_refused(fields: str, sizes: int) -> None:
    line = Line()
    line.send(b"POST /echo HTTP/1.1\r\n" + fields.encode("latin-1") + b"\r\n\r\n" + HIDDEN, sizes=sizes)
    assert line.statuses() == [400]
    assert line.server.seen == []
    assert line.server.echoed == []
    assert line.is_closed


@pytest.mark.parametrize("coding", ["identity", "xchunked", "gzip", "gzip, chunked", '"chunked"'])
def test_other_transfer_codings_are_refused(coding: str) -> None:
    line = Line()
    line.send(get("/echo", f"Transfer-Encoding: {coding}", method="POST") + HIDDEN)
    assert line.statuses() == [501]
    assert line.server.seen == []
    assert line.is_closed


@pytest.mark.parametrize(
    "chunks",
    [
        b"5 \r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"+5\r\nhello\r\n0\r\n\r\n",
        b"-1\r\n",
        b"5\nhello\n0\n\n",
        b"5\r\nhelloX\r\n0\r\n\r\n",
        b"FFFFFFFFFFFFFFFF1\r\n",
        b"\r\n",
        b'5;a="\r\n"\r\nhello\r\n0\r\n\r\n',
    ],
)
def test_doubtful_chunks_are_refused(chunks: bytes) -> None:
    line = Line()
    line.send(get("/echo", "Transfer-Encoding: chunked", method="POST") + chunks + HIDDEN)
    assert line.statuses() == [400]
    assert line.server.seen == []
    assert line.is_closed


UPGRADES = [
    ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA"),
    ("Upgrade: websocket", "Connection: upgrade"),
    ("Connection: keep-alive, Upgrade", "Upgrade: a/1, b/2"),
]


@pytest.mark.parametrize("upgrade", UPGRADES)
@pytest.mark.parametrize("sizes", [0, 1, 50])
class TestUpgrade:
    """An offer to change protocols is declined by answering in this one, and its body stays a body."""

    def test_without_a_body(self, upgrade: tuple[str, ...], sizes: int) -> None:
        line = Line()
        line.send(get("/now/1", *upgrade) + get("/now/2"), sizes=sizes)
        assert [answer.body for answer in line.answers()] == [b"[1]", b"[2]"]

    def test_with_a_body(self, upgrade: tuple[str, ...], sizes: int) -> None:
        line = Line()
        line.send(post("/echo", HIDDEN, *upgrade) + get("/now/2"), sizes=sizes)
        assert [answer.body for answer in line.answers()] == [HIDDEN, b"[2]"]
        assert line.server.seen == []

    def test_with_chunks(self, upgrade: tuple[str, ...], sizes: int) -> None:
        line = Line()
        line.send(chunked("/echo", HIDDEN, b"more", headers=upgrade) + get("/now/2"), sizes=sizes)
        assert [answer.body for answer in line.answers()] == [HIDDEN + b"more", b"[2]"]
        assert line.server.seen == []

    def test_with_an_expectation(self, upgrade: tuple[str, ...], sizes: int) -> None:
        line = Line()
        line.send(get("/echo", *upgrade, "Expect: 100-continue", "Content-Length: 2", method="POST"), sizes=sizes)
        assert line.statuses() == [100]
        line.send(b"{}", sizes=sizes)
        assert line.statuses() == [100, 200]

    def test_with_a_bad_transfer_coding(self, upgrade: tuple[str, ...], sizes: int) -> None:
        line = Line()
        line.send(get("/echo", *upgrade, "Transfer-Encoding: identity", method="POST") + HIDDEN, sizes=sizes)
        assert line.statuses() == [501]
        assert line.server.seen == []


def test_an_upgrade_that_wants_the_connection_closed() -> None:
    line = Line()
    line.send(get("/now/1", "Connection: close, upgrade", "Upgrade: h2c"))
    assert line.answers()[0].headers[b"connection"] == b"close"
    assert line.is_closed


def test_the_head_limit_holds_for_upgrades_too() -> None:
    line = Line()
    line.send(get("/now/1", *UPGRADES[0], "X: " + "x" * 70000))
    assert line.statuses() == [431]


def test_connect_is_refused_and_ends_the_connection() -> None:
    line = Line()
    line.send(get("elsewhere:80", method="CONNECT") + HIDDEN)
    assert line.statuses() == [501]
    assert line.server.seen == []
    assert line.is_closed


def test_http_2_without_asking() -> None:
    line = Line()
    line.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(30))
    assert line.statuses() == [400]
    assert line.is_closed


def test_underscores_make_another_header() -> None:
    line = Line()
    line.send(get("/echo", "Transfer_Encoding: chunked", "Content_Length: 50", method="POST") + get("/now/2"))
    assert [answer.body for answer in line.answers()] == [b"", b"[2]"]


def test_empty_lines_between_requests_are_skipped() -> None:
    line = Line()
    line.send(b"\r\n\r\n" + post("/echo", b"x") + b"\r\n" + post("/echo", b"x") + b"\r\n\r\n" + post("/echo", b"x"))
    assert line.statuses() == [200, 200, 200]
