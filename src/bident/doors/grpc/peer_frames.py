"""The frames that are about the connection and its streams rather than about a call's content."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from bident.doors.grpc import frames
from bident.doors.grpc.frames import (
    ACK,
    END_HEADERS,
    LARGEST_MAX_FRAME,
    LARGEST_WINDOW,
    SMALLEST_MAX_FRAME,
    BrokenRulesError,
    ErrorCode,
    Kind,
    Setting,
)

if TYPE_CHECKING:
    from bident.doors.grpc.connection import GrpcConnection
    from bident.doors.grpc.server import GrpcServer

_FIRST_TABLE_SIZE = 4096
_MOST_SETTINGS = 128
_MOST_CONTINUATIONS = 64
_UPDATES_AT_FIRST = 4096
_UPDATES_FOR_A_FRAME = 16
"""WINDOW_UPDATEs that a client may send for each frame of an answer."""
_SETTINGS_COST = 10
_STREAMS_COST = 1 / 256
"""For each open stream, whose window a setting changes."""
_BLOCK_FACTOR = 2
"""A header block that is larger than allowed gets an answer up to this many times the limit, as long as it can be
decoded at once; the connection ends beyond.
"""


class ControlFrame(NamedTuple):
    """A frame, whole."""

    flags: int
    number: int
    """Of its stream; 0 is the connection."""
    payload: bytes


def _need(condition: bool, code: ErrorCode, reason: str) -> None:
    if not condition:
        raise BrokenRulesError(code, reason)


def take_priority(connection: GrpcConnection, control: ControlFrame) -> None:
    """Streams are served as they come: there is nothing to do, but to see that it is well-formed."""
    _need(control.number != 0, ErrorCode.PROTOCOL_ERROR, "PRIORITY on stream 0")
    connection.life.spend()
    if len(control.payload) != 5:
        connection.calls.fail_stream(control.number, ErrorCode.FRAME_SIZE_ERROR)
    elif frames.number(control.payload) == control.number:
        connection.calls.fail_stream(control.number, ErrorCode.PROTOCOL_ERROR)


def take_rst_stream(connection: GrpcConnection, control: ControlFrame) -> None:
    """The client cancels a call."""
    _need(len(control.payload) == 4, ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM has 4 bytes")
    _need(
        0 < control.number <= connection.calls.last_stream,
        ErrorCode.PROTOCOL_ERROR,
        "RST_STREAM on a stream that has never been open",
    )
    stream = connection.calls.streams.get(control.number)
    if stream is not None:
        connection.life.spend_reset()
        stream.cancel()
    elif control.number in connection.calls.refusals:
        connection.life.spend_reset()
        connection.calls.refusals.forget(control.number)
    else:
        connection.life.spend(0.1)  # it crossed our answer


def take_settings(connection: GrpcConnection, control: ControlFrame) -> None:
    """The client says what it takes."""
    size = len(control.payload)
    _need(control.number == 0, ErrorCode.PROTOCOL_ERROR, "SETTINGS on a stream")
    if control.flags & ACK:
        _need(size == 0, ErrorCode.FRAME_SIZE_ERROR, "an acknowledgement of SETTINGS has no content")
        connection.life.spend()
        return
    _need(size % 6 == 0, ErrorCode.FRAME_SIZE_ERROR, "SETTINGS has 6 bytes for each setting")
    _need(size <= 6 * _MOST_SETTINGS, ErrorCode.ENHANCE_YOUR_CALM, "there are not that many settings")
    streams = connection.calls.streams
    connection.life.spend(_SETTINGS_COST + _STREAMS_COST * len(streams))
    window = connection.outflow.initial_window
    for name, value in frames.read_settings(control.payload):
        if name == Setting.INITIAL_WINDOW_SIZE:
            _need(value <= LARGEST_WINDOW, ErrorCode.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE is larger than 2^31 - 1")
            window = value
        else:
            _take_setting(connection, name, value)
    if window != connection.outflow.initial_window:
        connection.outflow.set_initial_window(window, list(streams.values()))
    connection.outflow.write(frames.frame(Kind.SETTINGS, ACK, 0))
    connection.life.settings_came()


def _take_setting(connection: GrpcConnection, name: int, value: int) -> None:
    outflow = connection.outflow
    if name == Setting.HEADER_TABLE_SIZE:
        if value < _FIRST_TABLE_SIZE:
            outflow.forget_table()
    elif name == Setting.ENABLE_PUSH:
        _need(value <= 1, ErrorCode.PROTOCOL_ERROR, "ENABLE_PUSH is 0 or 1")
    elif name == Setting.MAX_FRAME_SIZE:
        is_legal = SMALLEST_MAX_FRAME <= value <= LARGEST_MAX_FRAME
        _need(is_legal, ErrorCode.PROTOCOL_ERROR, "MAX_FRAME_SIZE is from 2^14 to 2^24 - 1")
        outflow.set_max_frame(value)


def take_ping(connection: GrpcConnection, control: ControlFrame) -> None:
    """The client asks whether we are alive, or answers that."""
    _need(control.number == 0, ErrorCode.PROTOCOL_ERROR, "PING on a stream")
    _need(len(control.payload) == 8, ErrorCode.FRAME_SIZE_ERROR, "PING has 8 bytes")
    if control.flags & ACK:
        connection.life.spend()
        connection.life.ping_answered(control.payload)
    else:
        connection.life.ping_came()
        connection.outflow.write(frames.frame(Kind.PING, ACK, 0, control.payload))


def take_goaway(connection: GrpcConnection, control: ControlFrame) -> None:
    """The client begins no more calls; those it has begun are still answered."""
    _need(control.number == 0, ErrorCode.PROTOCOL_ERROR, "GOAWAY on a stream")
    _need(len(control.payload) >= 8, ErrorCode.FRAME_SIZE_ERROR, "GOAWAY has 8 bytes or more")
    connection.life.client_leaves()


def take_window_update(connection: GrpcConnection, control: ControlFrame) -> None:
    """The client takes more bytes, of one stream or of all together."""
    _need(len(control.payload) == 4, ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE has 4 bytes")
    outflow = connection.outflow
    connection.life.updates += 1
    if connection.life.updates > _UPDATES_AT_FIRST + _UPDATES_FOR_A_FRAME * outflow.frames:
        raise BrokenRulesError(ErrorCode.ENHANCE_YOUR_CALM, "too many WINDOW_UPDATE frames for what has been sent")
    increment = frames.number(control.payload)
    if control.number == 0:
        _need(increment > 0, ErrorCode.PROTOCOL_ERROR, "a window of the connection cannot grow by 0")
        outflow.widen(increment)
        return
    _need(
        control.number <= connection.calls.last_stream,
        ErrorCode.PROTOCOL_ERROR,
        "WINDOW_UPDATE on a stream that is not open",
    )
    stream = connection.calls.streams.get(control.number)
    if stream is None:
        return
    if increment == 0:
        connection.calls.fail_stream(control.number, ErrorCode.PROTOCOL_ERROR)
    elif outflow.room(stream) + increment > LARGEST_WINDOW:
        connection.calls.fail_stream(control.number, ErrorCode.FLOW_CONTROL_ERROR)
    else:
        stream.credit += increment
        if stream.queued:
            outflow.make_ready(stream)


def take_unknown(connection: GrpcConnection, _: ControlFrame) -> None:
    """Extensions that have not been agreed on mean nothing."""
    connection.life.spend()


def refuse(reason: str) -> Callable[..., None]:
    """What takes frames that have no place where they come."""

    def take(*_: object) -> None:
        raise BrokenRulesError(ErrorCode.PROTOCOL_ERROR, reason)

    return take


class UnfinishedBlock:
    """A header block that continues in further frames; nothing else may come in between."""

    __slots__ = ("_count", "_limit", "began", "block", "flags", "number")

    def __init__(self, number: int, flags: int, block: bytes, server: GrpcServer) -> None:
        self.number = number
        self.flags = flags
        self.block = block
        self.began = server.now
        self._limit = _BLOCK_FACTOR * server.limits.head_bytes
        self._count = 0

    def is_completed_by(self, flags: int, number: int, payload: bytes) -> bool:
        """Add the payload of a CONTINUATION frame; whether that was the last one."""
        _need(number == self.number, ErrorCode.PROTOCOL_ERROR, "CONTINUATION on another stream than its HEADERS")
        self.block += payload
        self._count += 1
        is_small = self._count <= _MOST_CONTINUATIONS and len(self.block) <= self._limit
        _need(is_small, ErrorCode.ENHANCE_YOUR_CALM, "the header block does not end")
        return bool(flags & END_HEADERS)
