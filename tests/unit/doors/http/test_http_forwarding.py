"""Header forwarding over HTTP: names as the client wrote them, on every way that a request can take."""

from __future__ import annotations

import pytest
from http_line import Line, LineServer, post

from bident.doors.http.routes import Routes


def keeping() -> LineServer:
    server = LineServer()
    server.keeps_names = True
    return server


@pytest.mark.parametrize("sizes", [0, 1, 7])
def test_names_are_kept_as_they_were_written(sizes: int) -> None:
    line = Line(keeping())
    line.send(post("/echo", b"x", "X-Mixed: 1", "x-mixed: 2", "X-UPPER: 3"), sizes=sizes)
    line.send(post("/echo", b"x", "x-other: 4"), sizes=sizes)
    first, second = line.server.echoed
    assert first.sent_headers is not None
    assert second.sent_headers is not None
    assert {name: value for name, value in first.sent_headers.items() if name.lower().startswith(b"x-")} == {
        b"X-Mixed": b"1",
        b"x-mixed": b"2",
        b"X-UPPER": b"3",
    }
    assert second.sent_headers[b"x-other"] == b"4"
    assert b"X-UPPER" not in second.sent_headers
    assert first.headers[b"x-mixed"] == b"2"


def test_a_head_that_repeats_has_its_names_too() -> None:
    line = Line(keeping())
    for _ in range(4):
        line.send(post("/echo", b"x", "X-A: 1"))
    assert [exchange.sent_headers and exchange.sent_headers.get(b"X-A") for exchange in line.server.echoed] == [
        b"1"
    ] * 4


def test_trailers_are_no_headers() -> None:
    line = Line(keeping())
    line.send(
        b"POST /echo HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-B: 2\r\n\r\n"
    )
    (exchange,) = line.server.echoed
    assert exchange.sent_headers is not None
    assert b"X-A" in exchange.sent_headers
    assert b"X-B" not in exchange.sent_headers


def test_an_offer_to_change_protocols_leaves_the_names_alone() -> None:
    line = Line(keeping())
    line.send(post("/echo", b"x", "X-A: 1", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: x"))
    (exchange,) = line.server.echoed
    assert exchange.sent_headers is not None
    assert exchange.sent_headers[b"X-A"] == b"1"
    assert b"Upgrade" not in exchange.sent_headers


def test_nobody_keeps_names_who_does_not_need_them() -> None:
    line = Line(LineServer(Routes()))
    assert line.connection._reader._sent_headers is None
