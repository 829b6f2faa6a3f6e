"""The rules of HTTP/2 (RFC 9113): which broken one ends a stream, which the connection, and with which code."""

from __future__ import annotations

import pytest
from grpc_line import CALL, Line, block, data, headers, prefixed, settings, with_path

from bident.doors.grpc import frames
from bident.doors.grpc.frames import END_HEADERS, END_STREAM, PREFACE, ErrorCode, Kind, Setting, frame


def test_the_server_introduces_itself() -> None:
    line = Line()
    first, window, acknowledged = line.frames
    told = dict(frames.read_settings(first.payload))
    assert first.kind == Kind.SETTINGS
    assert told[Setting.MAX_CONCURRENT_STREAMS] == 2048
    assert told[Setting.MAX_HEADER_LIST_SIZE] == 64 * 1024
    assert (window.kind, window.stream) == (Kind.WINDOW_UPDATE, 0)
    assert (acknowledged.kind, acknowledged.flags, acknowledged.payload) == (Kind.SETTINGS, frames.ACK, b"")


def test_a_ping_comes_back() -> None:
    line = Line()
    line.send(frame(Kind.PING, 0, 0, b"12345678"))
    (pong,) = line.of_kind(Kind.PING)
    assert (pong.flags, pong.payload) == (frames.ACK, b"12345678")


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        # 3.4
        (frame(Kind.PING, 0, 0, bytes(8)), ErrorCode.PROTOCOL_ERROR),
        (frame(Kind.SETTINGS, frames.ACK, 0), ErrorCode.PROTOCOL_ERROR),
    ],
)
def test_the_first_frame_is_settings(sent: bytes, code: ErrorCode) -> None:
    line = Line(hello=False)
    line.send(PREFACE, sent)
    assert line.goaway() == code
    assert line.is_ended


def test_what_is_no_preface() -> None:
    line = Line(hello=False)
    line.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc")
    assert line.goaway() == ErrorCode.PROTOCOL_ERROR


def test_who_speaks_http_1_is_told_in_http_1() -> None:
    line = Line(hello=False)
    line.connection.data_received(b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"HTTP/1.1 400 Bad Request\r\n" in line.transport.written
    assert b"--http-port" in line.transport.written
    assert line.transport.closed


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        # 4.2, 4.3
        (frame(Kind.DATA, 0, 1, bytes(16385)), ErrorCode.FRAME_SIZE_ERROR),
        (frame(Kind.HEADERS, END_HEADERS | END_STREAM, 1, b"\xff\xff\xff\xff\xff"), ErrorCode.COMPRESSION_ERROR),
        (frame(Kind.HEADERS, END_HEADERS | END_STREAM, 1, b"\x80"), ErrorCode.COMPRESSION_ERROR),
        (frame(Kind.HEADERS, 0, 1, block(*CALL)) + headers(3), ErrorCode.PROTOCOL_ERROR),
        (frame(Kind.HEADERS, 0, 1, block(*CALL)) + frame(Kind.PING, 0, 0, bytes(8)), ErrorCode.PROTOCOL_ERROR),
        (frame(Kind.HEADERS, 0, 1, block(*CALL)) + frame(0x99, 0, 0), ErrorCode.PROTOCOL_ERROR),
        (frame(Kind.HEADERS, 0, 1, b"") + frame(Kind.CONTINUATION, 4, 3, b""), ErrorCode.PROTOCOL_ERROR),
        # 5.1
        (data(1, b""), ErrorCode.PROTOCOL_ERROR),
        (frames.rst_stream(1, ErrorCode.CANCEL), ErrorCode.PROTOCOL_ERROR),
        (frames.window_update(1, 1), ErrorCode.PROTOCOL_ERROR),
        (frame(Kind.CONTINUATION, END_HEADERS, 1), ErrorCode.PROTOCOL_ERROR),
        (headers(2, flags=END_STREAM), ErrorCode.PROTOCOL_ERROR),
        (headers(0, flags=END_STREAM), ErrorCode.PROTOCOL_ERROR),
        (headers(5) + data(5, prefixed(b""), END_STREAM) + headers(3), ErrorCode.STREAM_CLOSED),
        (headers(1) + data(1, prefixed(b""), END_STREAM) + headers(1), ErrorCode.STREAM_CLOSED),
        # 5.3.1
        (frame(Kind.HEADERS, END_HEADERS | frames.PRIORITY, 1, b"\0\0\0\x01\0"), ErrorCode.PROTOCOL_ERROR),
        # 6.1, 6.2
        (data(0, b"x"), ErrorCode.PROTOCOL_ERROR),
        (headers(1) + frame(Kind.DATA, frames.PADDED, 1, b"\x06abcde"), ErrorCode.PROTOCOL_ERROR),
        (headers(1) + frame(Kind.DATA, frames.PADDED, 1, b""), ErrorCode.FRAME_SIZE_ERROR),
        (frame(Kind.HEADERS, END_HEADERS | frames.PADDED, 1, b"\x20"), ErrorCode.PROTOCOL_ERROR),
        (frame(Kind.HEADERS, END_HEADERS | frames.PADDED, 1, b""), ErrorCode.FRAME_SIZE_ERROR),
        (frame(Kind.HEADERS, END_HEADERS | frames.PRIORITY, 1, b"\0\0"), ErrorCode.FRAME_SIZE_ERROR),
        # 6.3, 6.4
        (frame(Kind.PRIORITY, 0, 0, bytes(5)), ErrorCode.PROTOCOL_ERROR),
        (headers(1) + frame(Kind.RST_STREAM, 0, 1, bytes(3)), ErrorCode.FRAME_SIZE_ERROR),
        (frame(Kind.RST_STREAM, 0, 0, bytes(4)), ErrorCode.PROTOCOL_ERROR),
        # 6.5
        (frame(Kind.SETTINGS, frames.ACK, 0, b"x"), ErrorCode.FRAME_SIZE_ERROR),
        (frame(Kind.SETTINGS, 0, 1), ErrorCode.PROTOCOL_ERROR),
        (frame(Kind.SETTINGS, 0, 0, bytes(5)), ErrorCode.FRAME_SIZE_ERROR),
        (settings(enable_push=2), ErrorCode.PROTOCOL_ERROR),
        (settings(initial_window_size=1 << 31), ErrorCode.FLOW_CONTROL_ERROR),
        (settings(max_frame_size=16383), ErrorCode.PROTOCOL_ERROR),
        (settings(max_frame_size=1 << 24), ErrorCode.PROTOCOL_ERROR),
        # 6.6, 6.7, 6.8
        (frame(Kind.PUSH_PROMISE, END_HEADERS, 1, bytes(4)), ErrorCode.PROTOCOL_ERROR),
        (frame(Kind.PING, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
        (frame(Kind.PING, 0, 0, bytes(6)), ErrorCode.FRAME_SIZE_ERROR),
        (frame(Kind.GOAWAY, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
        (frame(Kind.GOAWAY, 0, 0, bytes(7)), ErrorCode.FRAME_SIZE_ERROR),
        # 6.9
        (frames.window_update(0, 0), ErrorCode.PROTOCOL_ERROR),
        (frame(Kind.WINDOW_UPDATE, 0, 0, bytes(3)), ErrorCode.FRAME_SIZE_ERROR),
        (frames.window_update(0, (1 << 31) - 1), ErrorCode.FLOW_CONTROL_ERROR),
        (
            headers(1) + frames.window_update(1, 1000) + settings(initial_window_size=(1 << 31) - 1),
            ErrorCode.FLOW_CONTROL_ERROR,
        ),
    ],
)
def test_rules_whose_breach_ends_the_connection(sent: bytes, code: ErrorCode) -> None:
    line = Line()
    line.send(sent)
    assert line.goaway() == code
    assert line.is_ended
    assert line.connection.calls.streams == {}
    line.send(headers(99), data(99, prefixed(b"x"), END_STREAM))
    assert line.service.got.count(b"x") == 0


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (headers(1) + frames.window_update(1, 0), ErrorCode.PROTOCOL_ERROR),
        (headers(1) + frames.window_update(1, (1 << 31) - 1), ErrorCode.FLOW_CONTROL_ERROR),
        (headers(1) + headers(1), ErrorCode.PROTOCOL_ERROR),
        (headers(1) + headers(1, (b":path", b"/"), flags=END_STREAM), ErrorCode.PROTOCOL_ERROR),
        (headers(1) + frame(Kind.PRIORITY, 0, 1, bytes(4)), ErrorCode.FRAME_SIZE_ERROR),
        (headers(1) + frame(Kind.PRIORITY, 0, 1, b"\0\0\0\x01\0"), ErrorCode.PROTOCOL_ERROR),
        (headers(1) + data(1, prefixed(b"x"), END_STREAM) + data(1, b"more"), ErrorCode.STREAM_CLOSED),
        (
            headers(1, *with_path("/test.Echo/Later")) + data(1, prefixed(b"x"), END_STREAM) + data(1, b"y"),
            ErrorCode.STREAM_CLOSED,
        ),
    ],
)
def test_rules_whose_breach_ends_the_stream(sent: bytes, code: ErrorCode) -> None:
    line = Line()
    line.send(sent)
    assert line.answer(1).reset == code
    assert line.goaway() is None
    assert line.connection.calls.streams == {}
    line.send(headers(3), data(3, prefixed(b"next"), END_STREAM))
    assert line.answer(3).messages == [b"next"]


@pytest.mark.parametrize(
    "sent",
    [
        frame(0x16, 0xFF, 0, b"an extension"),
        frame(0xFF, 0, 7, b""),
        frame(Kind.PRIORITY, 0, 99, bytes(5)),
        frames.settings({0x99: 1, Setting.ENABLE_PUSH: 0}),  # type: ignore[dict-item]
        frame(Kind.PING, frames.ACK, 0, bytes(8)),
        frame(Kind.GOAWAY, 0, 0, bytes(8) + b"a reason"),
    ],
)
def test_what_changes_nothing(sent: bytes) -> None:
    line = Line()
    line.send(sent)
    assert line.ask().messages == [b"hello"]
    assert line.goaway() is None


def test_frames_that_crossed_our_end_of_a_stream_are_forgiven() -> None:
    line = Line()
    number = line.begin("/test.Echo/Kept")
    line.service.streams[0].finish(5, "enough")
    line.send(
        data(number, prefixed(b"x")),
        frames.window_update(number, 10),
        frame(Kind.HEADERS, END_HEADERS | END_STREAM, number, block((b"x-sum", b"1"))),
        frames.rst_stream(number, ErrorCode.CANCEL),
    )
    assert line.goaway() is None
    assert line.ask().status == 0


def test_the_reserved_bit_of_a_stream_is_ignored() -> None:
    line = Line()
    whole = bytearray(headers(1) + data(1, prefixed(b"x"), END_STREAM))
    whole[5] |= 0x80
    line.send(bytes(whole))
    assert line.answer(1).messages == [b"x"]


def test_a_smaller_dynamic_table_is_acknowledged_in_the_next_block() -> None:
    line = Line()
    line.send(settings(header_table_size=0))
    line.ask()
    first = line.of_kind(Kind.HEADERS)[0]
    assert first.payload[0] == 0x20
    line.ask()
    assert all(later.payload[0] != 0x20 for later in line.of_kind(Kind.HEADERS)[1:])


class TestKnownBlocks:
    """A block that repeats is not decoded again, for as long as it means the same."""

    def test_a_repeated_block_of_literals(self) -> None:
        line = Line()
        assert [line.ask(b"%d" % index).messages for index in range(3)] == [[b"0"], [b"1"], [b"2"]]
        assert len(line.connection.calls._blocks.known) == 1

    def test_the_dynamic_table_gives_a_block_another_meaning(self) -> None:
        line = Line()
        paths = b"/test.Echo/Unary", b"/test.Echo/Later"
        indexed = bytes((0x80 | 62,))

        def add(path: bytes) -> bytes:
            return b"\x44" + bytes((len(path),)) + path  # :path, to be indexed

        common = b"\x83\x86"  # :method POST, :scheme http
        rest = block((b"content-type", b"application/grpc"))

        def ask(number: int, path: bytes) -> None:
            line.send(frame(Kind.HEADERS, END_HEADERS, number, common + path + rest), data(number, prefixed(b"x"), 1))

        ask(1, add(paths[0]))
        for number in (3, 5):
            ask(number, indexed)
            assert line.answer(number).messages == [b"x"]
        ask(7, add(paths[1]))
        ask(9, indexed)
        assert [call.method for call in line.service.later] == [paths[1]] * 2

    def test_an_entry_that_pushes_another_out_is_noticed(self) -> None:
        line = Line()
        indexed = bytes((0x80 | 62,))
        fill = 3996  # one entry of this size, and the table holds no other

        def add(letter: bytes) -> bytes:
            value = letter * fill
            return b"\x40\x01x\x7f" + bytes(((fill - 127) & 0x7F | 0x80, (fill - 127) >> 7)) + value

        path = block((b":path", b"/test.Echo/Later"))
        head = b"\x83\x86" + path + block((b"content-type", b"application/grpc"))
        for number, extra in ((1, add(b"a")), (3, indexed), (5, indexed), (7, add(b"b")), (9, indexed)):
            line.send(frame(Kind.HEADERS, END_HEADERS, number, head + extra), data(number, prefixed(b"m"), 1))
        values = [call.metadata[b"x"][:1] for call in line.service.later]
        assert values == [b"a", b"a", b"a", b"b", b"b"]

    def test_they_are_bounded(self) -> None:
        line = Line()
        for index in range(300):
            line.ask(b"x", "/test.Echo/Unary", (b"x-id", b"%d" % index))
        assert len(line.connection.calls._blocks.known) <= 64
