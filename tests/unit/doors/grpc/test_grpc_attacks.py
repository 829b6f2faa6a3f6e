"""What a client may cost: floods end with ENHANCE_YOUR_CALM, before they have cost much, and harm nobody else."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import pytest
from grpc_line import CALL, Line, LineServer, block, data, headers, prefixed, settings, with_path
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from bident.doors.grpc import frames
from bident.doors.grpc.call import Status
from bident.doors.grpc.frames import END_HEADERS, END_STREAM, PREFACE, ErrorCode, Kind, frame
from bident.doors.grpc.limits import GrpcLimits

_CALM = ErrorCode.ENHANCE_YOUR_CALM


def _call(number: int) -> bytes:
    return headers(number, *with_path("/test.Echo/Later"))


def _once(number: int, first: bytes, then: bytes) -> bytes:
    return first + then if number == 1 else then


FLOODS: dict[str, Callable[[int], bytes]] = {
    "rapid reset": lambda number: (
        _call(number) + data(number, prefixed(b"x"), END_STREAM) + frames.rst_stream(number, ErrorCode.CANCEL)
    ),
    "made you reset": lambda number: _call(number) + frames.window_update(number, 0),
    "malformed": lambda number: headers(number, *CALL[1:], flags=END_STREAM),
    "settings": lambda _: settings(max_frame_size=16384),
    "settings acknowledged": lambda _: frame(Kind.SETTINGS, frames.ACK, 0),
    "ping": lambda _: frame(Kind.PING, 0, 0, bytes(8)),
    "pong": lambda _: frame(Kind.PING, frames.ACK, 0, bytes(8)),
    "priority": lambda number: frame(Kind.PRIORITY, 0, number, bytes(5)),
    "unknown": lambda _: frame(0x42, 0, 0),  # type: ignore[arg-type]
    "window update": lambda _: frames.window_update(0, 1),
    "empty data": lambda number: _once(number, _call(1), data(1, b"")),
    "continuation": lambda number: _once(number, frame(Kind.HEADERS, 0, 1), frame(Kind.CONTINUATION, 0, 1)),
    "large continuation": lambda number: _once(
        number, frame(Kind.HEADERS, 0, 1), frame(Kind.CONTINUATION, 0, 1, bytes(16000))
    ),
}
"""What one client sends again and again, given the number of a stream that is new each time."""


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_ends_the_connection(name: str) -> None:
    server = LineServer()
    line, neighbour = Line(server), Line(server)
    began = time.process_time()
    for sent in range(20_001):
        line.connection.data_received(FLOODS[name](2 * sent + 1))
        if sent % 64 == 0:
            server.settle()
        if line.connection.life.is_over:
            break
        assert sent < 20_000
    assert time.process_time() - began < 5
    assert line.goaway() == _CALM
    assert line.connection.calls.streams == {}
    assert server.held.size == 0
    assert neighbour.ask().messages == [b"hello"]


def test_a_client_that_cancels_many_calls_of_an_honest_day_is_no_flood() -> None:
    line = Line()
    for number in range(1, 4001, 2):
        line.connection.data_received(
            headers(number, *with_path("/test.Echo/Later"))
            + data(number, prefixed(b"x"), END_STREAM)
            + frames.rst_stream(number, ErrorCode.CANCEL)
        )
    line.server.settle()
    assert line.goaway() is None
    assert len(line.service.cancelled) == 2000


def test_flow_control_of_an_honest_client_is_no_flood() -> None:
    line = Line()
    for number in range(1, 20_001, 2):
        line.connection.data_received(headers(number) + data(number, prefixed(b"x"), END_STREAM))
        line.connection.data_received(frames.window_update(0, 6) + frames.window_update(number, 6))
        if number % 500 == 1:
            line.server.settle()
    line.server.settle()
    assert line.goaway() is None
    assert len(line.service.got) == 10_000


def test_a_bomb_of_indexed_fields() -> None:
    line = Line()
    value = b"v" * 3000
    add = b"\x40\x01x\x7f" + bytes(((3000 - 127) & 0x7F | 0x80, (3000 - 127) >> 7)) + value
    line.send(frame(Kind.HEADERS, END_HEADERS | END_STREAM, 1, block(*CALL) + add))
    tracemalloc.start()
    line.send(frame(Kind.HEADERS, END_HEADERS | END_STREAM, 3, block(*CALL) + b"\xbe" * 16_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert line.goaway() == _CALM
    assert peak < 4 << 20


def test_metadata_over_the_limit_gets_an_answer() -> None:
    line = Line(limits=GrpcLimits(head_bytes=8192))
    answer = line.ask(b"x", "/test.Echo/Unary", (b"x-large", b"v" * 9000))
    assert answer.status == Status.RESOURCE_EXHAUSTED
    assert b"received metadata size exceeds" in answer.message
    assert line.ask().messages == [b"hello"]


def test_streams_beyond_the_limit_are_refused_and_may_be_tried_again() -> None:
    line = Line(limits=GrpcLimits(streams=3))
    for number in (1, 3, 5, 7):
        line.send(headers(number, *with_path("/test.Echo/Later")), data(number, prefixed(b"x"), END_STREAM))
    assert line.answer(7).reset == ErrorCode.REFUSED_STREAM
    assert len(line.service.later) == 3
    line.service.later[0].reply(b"")
    line.send(headers(9), data(9, prefixed(b"x"), END_STREAM))
    assert line.answer(9).messages == [b"x"]


def test_a_crowd_leaves_each_connection_fewer_calls() -> None:
    server = LineServer(GrpcLimits(calls=10, crowded_streams=2))
    line = Line(server)
    for number in range(1, 25, 2):
        line.send(headers(number, *with_path("/test.Echo/Later")), data(number, prefixed(b"x"), END_STREAM))
    server.count_calls()
    other = Line(server)
    for number in (1, 3, 5):
        other.send(headers(number, *with_path("/test.Echo/Later")), data(number, prefixed(b"x"), END_STREAM))
    assert other.answer(5).reset == ErrorCode.REFUSED_STREAM
    line.lose()
    server.count_calls()
    other.send(headers(7), data(7, prefixed(b"x"), END_STREAM))
    assert other.answer(7).messages == [b"x"]


def test_one_client_does_not_keep_the_loop_to_itself() -> None:
    server = LineServer()
    line, neighbour = Line(server), Line(server)
    many = b"".join(headers(number) + data(number, prefixed(b"x"), END_STREAM) for number in range(1, 2 * 1500, 2))
    line.connection.data_received(many)
    assert 0 < len(server.service.got) < 1500
    assert not line.transport.receiving
    neighbour.connection.data_received(headers(1) + data(1, prefixed(b"neighbour"), END_STREAM))
    assert server.service.got[-1] == b"neighbour"
    server.settle()
    assert len(server.service.got) == 1501
    assert line.transport.receiving


KINDS = st.integers(0, 11)
FRAMES = st.builds(
    frame,
    KINDS,
    st.integers(0, 255),
    st.sampled_from([0, 1, 2, 3, 5, 7, 0x7FFFFFFF]),
    st.one_of(
        st.binary(max_size=40),
        st.just(block(*CALL)),
        st.just(prefixed(b"message")),
        st.just((100).to_bytes(4, "big")),
        st.just(prefixed(b"a") + prefixed(b"b")),
    ),
)


@effort(max_examples=300, deadline=None)
@given(st.lists(FRAMES, max_size=12), st.sampled_from([0, 1, 3, 50]), st.booleans())
def test_any_frames(sent: list[bytes], sizes: int, streaming: bool) -> None:
    """Whatever frames come, what is sent back is well-formed (the line checks that), and nothing is left behind."""
    server = LineServer()
    line = Line(server)
    path = "/test.Echo/Stream" if streaming else "/test.Echo/Unary"
    line.send(headers(1, *with_path(path)), *sent, sizes=sizes)
    server.settle()
    line.answer(0)
    line.lose()
    assert line.connection.calls.streams == {}
    assert server.held.size == 0
    assert Line(server).ask().messages == [b"hello"]


@effort(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes(sent: bytes, hello: bool) -> None:
    server = LineServer()
    line = Line(server, hello=hello)
    line.connection.data_received(sent)
    server.settle()
    line.lose()
    assert Line(server).ask().messages == [b"hello"]


@effort(max_examples=200, deadline=None)
@given(st.integers(0, 200), st.binary(min_size=1, max_size=4))
def test_damaged_calls(at: int, damage: bytes) -> None:
    server = LineServer()
    line = Line(server, hello=False)
    good = PREFACE + settings() + headers(1) + data(1, prefixed(b"x"), END_STREAM) + headers(3, flags=END_STREAM)
    line.connection.data_received(good[:at] + damage + good[at + len(damage) :])
    server.settle()
    line.lose()
    assert server.held.size == 0
    assert Line(server).ask().messages == [b"hello"]
