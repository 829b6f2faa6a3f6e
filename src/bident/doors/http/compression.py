"""gzip and deflate, both ways, within a size limit."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from bident.doors.http.exchange import Buffer
from bident.errors import Code, ServeError, invalid_arg

_WINDOW = {b"gzip": 16 + zlib.MAX_WBITS, b"deflate": zlib.MAX_WBITS}
SUPPORTED = b"gzip, deflate"


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
    best, best_weight, identity = b"", 0.0, 1.0
    for item in accepted.lower().split(b","):
        name, _, parameters = item.strip().partition(b";")
        weight = _weight(parameters)
        name = name.strip()
        if name == b"identity":
            identity = weight
        for known in (b"gzip", b"deflate"):
            if name in (known, b"*") and weight > best_weight:
                best, best_weight = known, weight
    explicit = b"identity" in accepted.lower()
    return best if best_weight > 0 and (not explicit or best_weight >= identity) else b""


def _weight(parameters: bytes) -> float:
    name, _, value = parameters.strip().partition(b"=")
    if name.strip() != b"q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0


def compress(encoding: bytes, pieces: Sequence[Buffer]) -> bytes:
    """The joined ``pieces`` in ``encoding`` (gzip or deflate)."""
    machine = zlib.compressobj(level=1, wbits=_WINDOW[encoding])
    packed = [machine.compress(piece) for piece in pieces]
    packed.append(machine.flush())
    return b"".join(packed)
