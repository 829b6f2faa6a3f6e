"""gzip and deflate, both ways, within a size limit."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from functools import partial

from bident.doors.aside import aside
from bident.doors.http.exchange import Buffer
from bident.errors import Code, ServeError, invalid_arg

_WINDOW = {b"gzip": 16 + zlib.MAX_WBITS, b"x-gzip": 16 + zlib.MAX_WBITS, b"deflate": zlib.MAX_WBITS}
_WEIGHT = re.compile(rb"[01](\.\d{0,3})?")
_OFFERED = (b"gzip", b"deflate")
SUPPORTED = b"gzip, deflate"

_UNPACK_HERE = 2 * 1024
_PACK_HERE = 64 * 1024
"""Up to these many bytes the event loop does the work itself: packed ones unpack to 2 MB at most."""


async def unpack(encoding: bytes, body: bytes, limit: int) -> bytes:
    """What :func:`decompress` says; a body that may be large is left to a thread."""
    if len(body) <= _UNPACK_HERE:
        return decompress(encoding, body, limit)
    return await aside(partial(decompress, encoding, body, limit))


async def pack(encoding: bytes, pieces: Sequence[Buffer]) -> bytes:
    """What :func:`compress` says, done by a thread."""
    return await aside(partial(compress, encoding, pieces))


def is_large(pieces: Sequence[Buffer]) -> bool:
    """Whether packing ``pieces`` would keep the event loop from other clients: then use :func:`pack`."""
    return sum(len(piece) for piece in pieces) > _PACK_HERE


def decompress(encoding: bytes, body: bytes, limit: int) -> bytes:
    """``body`` as it was before ``encoding``, at most ``limit`` bytes of it.

    Raises UNSUPPORTED for an encoding other than gzip, deflate and identity, INVALID_ARG for bytes
    that are not what they claim, are cut short, or unpack to more than ``limit``.
    """
    window = _WINDOW.get(encoding)
    if window is None:
        raise ServeError(Code.UNSUPPORTED, f"Unsupported compression type: use one of {SUPPORTED.decode()}")
    machine = zlib.decompressobj(window)
    try:
        data = machine.decompress(body, limit + 1)
    except zlib.error as error:
        raise invalid_arg(f"the request's {encoding.decode()} body cannot be decompressed: {error}") from None
    if len(data) > limit:
        raise invalid_arg(
            f"request body exceeds the maximum allowed value of {limit} bytes once decompressed. "
            f"Use --http-max-input-size to increase the limit."
        )
    if not machine.eof or machine.unused_data:
        what = "has bytes after its end" if machine.eof else "is cut short"
        raise invalid_arg(f"the request's {encoding.decode()} body {what}")
    return data


def choose(accepted: bytes) -> bytes:
    """The encoding that an ``Accept-Encoding`` header prefers among ours; empty for none."""
    weights: dict[bytes, float] = {}
    for item in accepted.lower().split(b","):
        name, _, parameters = item.partition(b";")
        weights[name.strip()] = _weight(parameters)
    others = weights.get(b"*", 0.0)
    offered = (*(name for name in weights if name in _OFFERED), *_OFFERED)
    best = max(offered, key=lambda name: weights.get(name, others))  # the first of equals
    best_weight = weights.get(best, others)
    return best if best_weight > 0 and best_weight >= weights.get(b"identity", 0.0) else b""


def _weight(parameters: bytes) -> float:
    """The number after ``q=``; 1 without one, 0 (not wanted) if it is none."""
    for parameter in parameters.split(b";"):
        name, _, value = parameter.partition(b"=")
        if name.strip() == b"q":
            return float(value) if _WEIGHT.fullmatch(value.strip()) else 0.0
    return 1.0


def compress(encoding: bytes, pieces: Sequence[Buffer]) -> bytes:
    """The joined ``pieces`` in ``encoding`` (gzip or deflate)."""
    machine = zlib.compressobj(level=1, wbits=_WINDOW[encoding])
    packed = [machine.compress(piece) for piece in pieces]
    packed.append(machine.flush())
    return b"".join(packed)
