"""What answers begin and end with: header blocks, encoded once, that use no table of HPACK's but the static one."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote

from bident.doors.grpc.call import Status

_MOST_MESSAGE = 6 * 1024
"""Clients refuse headers of more than 8 KiB together, unless told otherwise."""
_PLAIN = "".join(chr(code) for code in range(0x20, 0x7F) if code != ord("%"))
"""What a grpc-message may hold as it is."""

_STATUS_NAME = b"\x08"
"""``:status``, entry 8 of the static table, not to be indexed."""
_CONTENT_TYPE_NAME = b"\x0f\x10"
"""``content-type``, entry 31, likewise."""
FORGET_TABLE = b"\x20"
"""Sets the size of the dynamic table to 0: must begin the first block after the client has made the table smaller."""


def literal(name: bytes, value: bytes) -> bytes:
    """A header field that no table takes up."""
    return b"\x00" + _string(name) + _string(value)


def _string(text: bytes) -> bytes:
    """A string of HPACK's, without Huffman coding; its length is an integer with a prefix of 7 bits."""
    size = len(text)
    if size < 0x7F:
        return bytes((size,)) + text
    head = bytearray((0x7F,))
    size -= 0x7F
    while size >= 0x80:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head) + text


OK_HEAD = b"\x88" + _CONTENT_TYPE_NAME + _string(b"application/grpc")
"""``:status`` 200, which is entry 8 of the static table as a whole, and the content type."""
OK_TRAILERS = literal(b"grpc-status", b"0")
ACCEPTED = literal(b"grpc-accept-encoding", b"identity,deflate,gzip")


@lru_cache(maxsize=4)
def packed_head(encoding: bytes) -> bytes:
    """The head of an answer whose messages are compressed."""
    return OK_HEAD + literal(b"grpc-encoding", encoding)


def trailers(status: int, message: str) -> bytes:
    """What ends a call after its head has been sent."""
    if not message:
        return literal(b"grpc-status", b"%d" % status)
    return literal(b"grpc-status", b"%d" % status) + literal(b"grpc-message", _encode(message))


def trailers_only(status: int, message: str) -> bytes:
    """Head and end of a call that has no message."""
    return OK_HEAD + trailers(status, message)


def no_grpc(http_status: int, status: Status, message: str) -> bytes:
    """The head of an answer to a request that is not gRPC; what follows is plain text."""
    return (
        _STATUS_NAME
        + _string(b"%d" % http_status)
        + _CONTENT_TYPE_NAME
        + _string(b"text/plain; charset=utf-8")
        + trailers(status, message)
    )


def _encode(message: str) -> bytes:
    encoded = quote(message, safe=_PLAIN, errors="replace")
    if len(encoded) > _MOST_MESSAGE:
        # Cut between characters: an encoded one is up to 4 times "%XX".
        end = _MOST_MESSAGE
        kept = message
        while len(encoded) > end:
            kept = kept[: len(kept) * end // (len(encoded) + 1)]
            encoded = quote(kept, safe=_PLAIN, errors="replace")
        encoded += "..."
    return encoded.encode("ascii")
