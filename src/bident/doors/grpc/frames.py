"""HTTP/2's frames (RFC 9113, sections 4, 6 and 7): their words, and how the ones we send are written."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD = Struct(">IBI")
"""A frame's head: payload's length and kind, flags, stream."""
HEAD_SIZE = HEAD.size
SMALLEST_MAX_FRAME = 1 << 14
LARGEST_MAX_FRAME = (1 << 24) - 1
LARGEST_WINDOW = (1 << 31) - 1
FIRST_WINDOW = 65535
"""What every window is until somebody says otherwise."""
OUR_WINDOW = 1 << 30
"""How much we take on all streams of a connection: what is received is taken at once, so it only has to be much."""
STREAM_BITS = 0x7FFFFFFF

END_STREAM = 0x1
ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITY = 0x20


class Kind(IntEnum):
    """What a frame is for."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class ErrorCode(IntEnum):
    """Why a stream or a connection ends."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11


class Setting(IntEnum):
    """What one side tells the other about itself."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class BrokenRulesError(Exception):
    """The client broke a rule of HTTP/2 after which the connection cannot go on; the connection says so and ends.

    Never leaves the connection: it is no answer to a request, so it has none of Triton's codes.
    """

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


_MOST_REASON = 200
_PRIORITY_SIZE = 5
_SETTING = Struct(">HI")
_TWO = Struct(">II")
_ONE = Struct(">I")


def frame(kind: Kind, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """The bytes of a frame."""
    return HEAD.pack(len(payload) << 8 | kind, flags, stream) + payload


def settings(values: dict[Setting, int]) -> bytes:
    """A SETTINGS frame."""
    return frame(Kind.SETTINGS, 0, 0, b"".join(_SETTING.pack(name, value) for name, value in values.items()))


def read_settings(payload: bytes) -> list[tuple[int, int]]:
    """Identifiers and values of a SETTINGS frame's payload, whose length is a multiple of 6."""
    return list(_SETTING.iter_unpack(payload))


def window_update(stream: int, increment: int) -> bytes:
    """A WINDOW_UPDATE frame: ``increment`` more bytes may come on ``stream``, or, for 0, on the connection."""
    return frame(Kind.WINDOW_UPDATE, 0, stream, _ONE.pack(increment))


def rst_stream(stream: int, code: ErrorCode) -> bytes:
    """An RST_STREAM frame."""
    return frame(Kind.RST_STREAM, 0, stream, _ONE.pack(code))


def goaway(last_stream: int, code: ErrorCode, reason: str = "") -> bytes:
    """A GOAWAY frame: streams after ``last_stream`` are not served, and why (for whoever debugs the client)."""
    return frame(Kind.GOAWAY, 0, 0, _TWO.pack(last_stream, code) + reason.encode("utf-8", "replace")[:_MOST_REASON])


def number(payload: bytes) -> int:
    """The first 31 bits of ``payload``: a stream, or a window's increment."""
    return int.from_bytes(payload[:4], "big") & STREAM_BITS


def unpadded(data: bytes, start: int, stop: int) -> tuple[int, int]:
    """Where the content of a padded frame begins and ends, whose payload is ``data[start:stop]``."""
    if start == stop:
        raise BrokenRulesError(ErrorCode.FRAME_SIZE_ERROR, "a padded frame says how much padding it has")
    padding = data[start]
    if padding >= stop - start:
        raise BrokenRulesError(ErrorCode.PROTOCOL_ERROR, "a frame has more padding than content")
    return start + 1, stop - padding


def after_priority(stream: int, data: bytes, start: int, stop: int) -> int:
    """Where the header block begins in a HEADERS frame that says first how urgent ``stream`` is."""
    if stop - start < _PRIORITY_SIZE:
        raise BrokenRulesError(ErrorCode.FRAME_SIZE_ERROR, "HEADERS is too short for its priority")
    if number(data[start:stop]) == stream:
        raise BrokenRulesError(ErrorCode.PROTOCOL_ERROR, "a stream cannot depend on itself")
    return start + _PRIORITY_SIZE
