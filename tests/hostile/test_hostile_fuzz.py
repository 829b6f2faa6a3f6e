"""20,000 damaged requests, always the same, to a real server: it lives, keeps nothing and logs no traceback."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import socket
import struct
import time
from collections import Counter

import pytest

from benchmarks.servers import Bident
from hostile import Honest, connect, request, resident_mb, settled
from tests.unit.doors.http.http_line import Answer, chunked, get, read_answers

REQUESTS = 20_000
A_CONNECTION = 5
SEED = 20_240_601

_JSON = b'{"id":"a","inputs":[{"name":"X","shape":[2,2],"datatype":"FP32","data":[1.5,2,-3e2,0.0]}]}'
_HEAD = (
    b'{"inputs":[{"name":"X","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}}],'
    b'"outputs":[{"name":"Y","parameters":{"binary_data":true}}],"parameters":{"priority":0,"timeout":5}}'
)
_BINARY = _HEAD + struct.pack("<ff", 1.0, 2.0)
_LENGTH = f"Inference-Header-Content-Length: {len(_HEAD)}"
_INFER = "/v2/models/echo/infer"

GOOD = [
    request(_INFER, _JSON),
    request(_INFER, _JSON),
    request("/v2/models/echo/versions/1/infer", _JSON, "Accept-Encoding: gzip;q=0.5, deflate"),
    request(_INFER, _JSON.replace(b"FP32", b"BYTES")),
    request(_INFER, _JSON + b" " * 20_000),
    request(_INFER, _JSON.replace(b"[2,2]", b"[1,900]").replace(b"0.0", b",".join([b"1"] * 897))),
    request(_INFER, _BINARY, _LENGTH),
    request(_INFER, _BINARY, _LENGTH),
    request(_INFER, struct.pack("<ff", 1.0, 2.0), "Inference-Header-Content-Length: 0"),
    request(_INFER, gzip.compress(_JSON, mtime=0), "Content-Encoding: gzip"),
    request(_INFER, gzip.compress(_BINARY, mtime=0), "Content-Encoding: gzip", _LENGTH),
    request(_INFER, _JSON, "Expect: 100-continue"),
    request(_INFER, _JSON, "Connection: Upgrade", "Upgrade: h2c"),
    request(_INFER, _JSON, "Connection: close"),
    chunked(_INFER, _JSON[:20], _JSON[20:], trailers=("X: y",)),
    chunked(_INFER, _BINARY, headers=(_LENGTH,)),
    get("/v2"),
    get("/v2/health/ready", version="1.0"),
    get("/v2/models/echo"),
    get("/v2/models/echo/config"),
    get("/v2/models/echo/versions/1/stats"),
    get("http://here/v2/models/stats"),
    request("/v2/repository/index", b'{"ready":true}'),
    request("/v2/repository/models/echo/load", b'{"parameters":{"config":"{}","file:1/model.onnx":"AAEC"}}'),
    request("/v2/repository/models/echo/unload", b'{"parameters":{"unload_dependents":true}}'),
]
TOKENS = [
    *(b"\0", b"\r\n", b"\r\n\r\n", b"\n", b"\xff", b"\xc3\xa9", b'"', b"\\", b"\\ud800"),
    *(b"[", b"]", b"{", b"}", b",", b":", b"[" * 200, b"-", b"0", b"-1", b"1e999", b"4294967296", b"9" * 20),
    *(b"NaN", b"null", b"true", b'"X"', b"data", b"shape", b"%", b"%00", b"%2e%2e", b"/", b"//", b"?"),
    *(b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Content-Encoding: gzip\r\n", b"0\r\n\r\n"),
]
"""What is put in the wrong place."""


def damaged(chance: random.Random) -> bytes:
    """A good request with up to four things wrong with it; now and then with none."""
    data = bytearray(chance.choice(GOOD))
    for _ in range(chance.choice((0, 1, 1, 1, 2, 4))):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(6)
        if kind == 0:
            data[at : at + 1] = bytes([chance.randrange(256)])
        elif kind == 1:
            del data[at : at + chance.choice((1, 2, 10, 100))]
        elif kind == 2:
            data[at:at] = chance.choice(TOKENS)
        elif kind == 3:
            data[at : at + chance.randrange(1, 5)] = chance.choice(TOKENS)
        elif kind == 4:
            data[at:at] = data[at : at + chance.choice((1, 5, 50))]
        else:
            data[at:at] = chance.randbytes(chance.choice((1, 4, 16)))
    return bytes(data)


def answers_to(server: Bident, data: bytes, cut: int) -> list[Answer]:
    """Send ``data`` in two pieces and no more; everything the server has to say to it."""
    with contextlib.closing(connect(server)) as sock:
        received = b""
        with contextlib.suppress(OSError):  # it may have refused us before we were done
            sock.sendall(data[:cut])
            sock.sendall(data[cut:])
            sock.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while piece := sock.recv(1 << 18):
                received += piece
    return read_answers(received)


@pytest.mark.timeout(180)
def test_damaged_requests(victim: Bident, honest: Honest) -> None:
    chance = random.Random(SEED)
    statuses: Counter[int] = Counter()
    warm_mb = 0.0
    start = time.monotonic()
    for number in range(0, REQUESTS, A_CONNECTION):
        data = b"".join(damaged(chance) for _ in range(A_CONNECTION))
        for answer in answers_to(victim, data, chance.randrange(len(data) + 1)):
            statuses[answer.status] += 1
            assert answer.status < 400 or list(json.loads(answer.body)) == ["error"], (answer, data)
            assert answer.status != 500, (answer, data)
        if number % 500 == 0:
            honest.ask()
        if number == REQUESTS // 4:
            warm_mb = settled(lambda: resident_mb(victim))
    assert time.monotonic() - start < 60
    assert settled(lambda: resident_mb(victim)) < warm_mb + 20
    # The run has met what it was made for.
    assert statuses[200] > 1000
    assert statuses[400] > 1000
    assert {100, 404, 405, 501, 503} <= statuses.keys()
