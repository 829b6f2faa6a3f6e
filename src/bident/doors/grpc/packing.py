"""Compressed messages: gzip and deflate, both ways, within a size limit."""

from __future__ import annotations

import zlib
from typing import NamedTuple

from bident.doors.grpc.call import Buffer, Status

UNPACK_HERE = 2 * 1024
PACK_HERE = 64 * 1024
"""Up to these many bytes the event loop does the work itself: packed ones unpack to 2 MB at most."""

LEVELS = {"none": 0, "low": 1, "medium": 6, "high": 9}
"""zlib's effort for each word of ``--grpc-infer-response-compression-level``."""


class Coding(NamedTuple):
    """One way to compress."""

    name: bytes
    window: int
    """zlib's number for the format."""


GZIP = Coding(b"gzip", 16 + zlib.MAX_WBITS)
DEFLATE = Coding(b"deflate", zlib.MAX_WBITS)
CODINGS = {coding.name: coding for coding in (GZIP, DEFLATE)}


class RefusedMessageError(Exception):
    """A message that cannot be taken: the status and the words its call ends with."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def too_large(size: str, limit: int) -> RefusedMessageError:
    """The refusal of a message of ``size`` bytes, in the words that gRPC's clients know."""
    return RefusedMessageError(
        Status.RESOURCE_EXHAUSTED,
        f"Received message larger than max ({size} vs. {limit}): a request may have up to {limit} bytes; "
        f"send fewer rows at a time",
    )


def unpack(coding: Coding, data: Buffer, limit: int) -> bytes:
    """``data`` as it was before ``coding``; RefusedMessageError for more than ``limit`` bytes or a broken stream."""
    machine = zlib.decompressobj(coding.window)
    name = coding.name.decode()
    try:
        message = machine.decompress(data, limit + 1)
    except zlib.error as error:
        raise RefusedMessageError(Status.INTERNAL, f"the {name} message cannot be decompressed: {error}") from None
    if len(message) > limit:
        raise too_large(f"more than {limit} once decompressed", limit)
    if not machine.eof or machine.unused_data:
        what = "has bytes after its end" if machine.eof else "is cut short"
        raise RefusedMessageError(Status.INTERNAL, f"the {name} message {what}")
    return message


def pack(coding: Coding, level: int, message: Buffer) -> bytes:
    """``message`` in ``coding``."""
    machine = zlib.compressobj(level=level, wbits=coding.window)
    return machine.compress(message) + machine.flush()


def choose(accepted: bytes) -> Coding | None:
    """What to compress answers with for a client that takes ``accepted`` (its grpc-accept-encoding)."""
    names = {name.strip() for name in accepted.lower().split(b",")}
    return GZIP if GZIP.name in names else DEFLATE if DEFLATE.name in names else None
