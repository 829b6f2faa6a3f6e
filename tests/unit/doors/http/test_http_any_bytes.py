"""Whatever bytes come, in whatever pieces: valid answers or a closed connection, and nothing in the log."""

from __future__ import annotations

import itertools
import logging

import pytest
from http_line import Line, chunked, get, post
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from bident.doors.http.limits import HttpLimits

LIMITS = HttpLimits(head_bytes=300, json_bytes=200, binary_bytes=400, small_body=100)

_GOOD = st.sampled_from(
    [
        get("/now/1"),
        get("/now/1", version="1.0"),
        get("/now/1", "Connection: close"),
        get("/nowhere"),
        get("http://here/now/7?x#y"),
        post("/echo", b"body"),
        post("/now/3", b"body"),
        post("/binary", b"x" * 300, "Inference-Header-Content-Length: 5"),
        post("/echo", b"{}", "Expect: 100-continue"),
        post("/echo", b"{}", "Connection: Upgrade", "Upgrade: h2c"),
        chunked("/echo", b"ab", b"cde", trailers=("X: y",)),
        chunked("/echo", b"ab", headers=("Connection: Upgrade", "Upgrade: h2c")),
        get("elsewhere:80", method="CONNECT"),
        post("/echo", b"x" * 201),
        get("/now/1", "X: " + "x" * 400),
    ]
)
_FRAGMENT = st.sampled_from(
    [
        b"\r\n",
        b"\r",
        b"\n",
        b"\0",
        b":",
        b" ",
        b"Content-Length: 3",
        b"Transfer-Encoding: chunked",
        b"0\r\n\r\n",
        b"HTTP/",
    ]
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Requests, some of them damaged: bytes changed, cut out, or put in."""
    data = bytearray(b"".join(draw(st.lists(_GOOD, min_size=1, max_size=4))))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        removed = draw(st.integers(0, 3))
        data[at : at + removed] = draw(st.one_of(_FRAGMENT, st.binary(max_size=4)))
    return bytes(data)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:stop] for start, stop in itertools.pairwise(edges) if start < stop]


@given(data=st.one_of(streams(), st.binary(max_size=300)), cuts=st.lists(st.integers(0, 10**6), max_size=6))
@settings(
    deadline=None, max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_valid_answers_or_a_closed_connection(data: bytes, cuts: list[int], caplog: pytest.LogCaptureFixture) -> None:
    assume(b"HEAD" not in data)  # answers without bodies are another test's
    caplog.clear()
    line = Line(limits=LIMITS)
    for piece in pieces(data, cuts):
        line.send(piece)
    stays_open = line.shut_down()

    answers = line.answers()
    assert all(answer.status in {100, 200, 400, 404, 405, 413, 417, 431, 501, 505} for answer in answers)
    assert all(answer.body.startswith(b'{"error":"') for answer in answers if answer.status >= 400)
    assert not stays_open, "every route answers at once, so nothing is owed"
    assert line.transport.closed
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@given(data=streams(), cuts=st.lists(st.integers(0, 10**6), max_size=6))
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_the_answers_do_not_depend_on_the_pieces(data: bytes, cuts: list[int]) -> None:
    whole, cut = Line(limits=LIMITS), Line(limits=LIMITS)
    whole.send(data)
    for piece in pieces(data, cuts):
        cut.send(piece)
    for line in (whole, cut):
        line.shut_down()
    seen = [[(exchange.target, exchange.body) for exchange in line.server.echoed] for line in (whole, cut)]
    assert seen[0] == seen[1]
    # A head that is too large, unfinished and of another version is refused for whichever is noticed first.
    statuses = [[400 if status in (431, 505) else status for status in line.statuses()] for line in (whole, cut)]
    assert statuses[0] == statuses[1]
