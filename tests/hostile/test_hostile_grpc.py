"""Hostile clients of the gRPC door and a real server: it lives, keeps nothing, and its other clients are served."""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
import struct
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from google.protobuf.message import DecodeError
from hostile_grpc import INFER, STREAM_INFER, WIDE, Client, call, flooding, longest, question

from benchmarks.servers import Bident
from bident.doors.grpc import frames
from bident.doors.grpc.answer_heads import literal
from bident.doors.grpc.call import Status
from bident.doors.grpc.frames import END_HEADERS, END_STREAM, PREFACE, ErrorCode, Kind, frame
from bident.doors.grpc.messages import pb
from hostile import eventually, many_files, resident_mb, settled
from tests.conftest import Serve, write_identity
from tests.unit.doors.grpc.grpc_line import data, headers, prefixed, settings, with_path

FLOOD_SECONDS = 0.8
MAX_SECONDS = 1.0
"""What no call of a polite client may take, however busy the server is with the others."""
MAX_GROWTH_MB = 60
SEED = 20_261_130
REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
LIST_SERVICES = b"\x3a\x01x"


def _numbers() -> Iterator[int]:
    # Thrown out, a client begins again; its numbers may go on, they only have to grow.
    return itertools.count(1, 2)


def _rapid_reset() -> Iterator[bytes]:
    for number in _numbers():
        yield call(number, question()) + frames.rst_stream(number, ErrorCode.CANCEL)


def _empty_messages() -> Iterator[bytes]:
    for number in _numbers():
        yield headers(number, *with_path(STREAM_INFER)) + data(number, bytes(16_380)) * 8


def _undecodable() -> Iterator[bytes]:
    for number in _numbers():
        yield headers(number, *with_path(STREAM_INFER)) + data(number, prefixed(b"\xff\xff"))


def _header_blocks() -> Iterator[bytes]:
    # Huffman's code for "0" has 5 bits: these are many characters, and others each time.
    for number in _numbers():
        value = bytes(12_000) + struct.pack(">I", number)
        size = len(value) - 127
        coded = b"\0\1x" + bytes((0xFF, size & 0x7F | 0x80, size >> 7)) + value
        fields = b"".join(literal(name, text) for name, text in with_path(INFER))
        yield frame(Kind.HEADERS, END_HEADERS | END_STREAM, number, fields + coded)


def _windows() -> Iterator[bytes]:
    yield b"".join(headers(number, *with_path(STREAM_INFER)) for number in range(1, 4001, 2))
    for size in itertools.count(100_000):
        yield settings(initial_window_size=size % 1_000_000)


def _reflection() -> Iterator[bytes]:
    for number in _numbers():
        yield headers(number, *with_path(REFLECTION)) + data(number, prefixed(LIST_SERVICES) * 1000)


@pytest.mark.parametrize(
    "flood",
    [_rapid_reset, _empty_messages, _undecodable, _header_blocks, _windows, _reflection],
    ids=lambda f: f.__name__,
)
def test_a_flood_harms_no_other(victim: Bident, flood: Callable[[], Iterator[bytes]]) -> None:
    longest(victim, 0.2)
    before = resident_mb(victim)
    with flooding(victim, flood()):
        assert longest(victim, FLOOD_SECONDS) < MAX_SECONDS
    assert longest(victim, 0.2) < MAX_SECONDS
    eventually(lambda: resident_mb(victim) < before + MAX_GROWTH_MB, "what was kept for the flood is let go")


def test_answers_that_nobody_reads(victim: Bident) -> None:
    """Whatever a client asks and does not read, the server keeps little for it."""
    longest(victim, 0.2)
    before = resident_mb(victim)
    clients = [Client(victim, PREFACE + settings(initial_window_size=0)) for _ in range(3)]
    asked = prefixed(b"\x22\x1einference.GRPCInferenceService") * 400
    for client in clients:
        number = client.begin(REFLECTION)
        for _ in range((4 << 20) // len(asked) - 1):
            client.sock.sendall(data(number, asked))
        client.sock.sendall(b"".join(call(number, question(elements=4000)) for number in range(3, 403, 2)))
    assert longest(victim, 1.0) < MAX_SECONDS
    assert settled(lambda: resident_mb(victim)) < before + 3 * 40
    for client in clients:
        client.reset()
    assert longest(victim, 0.2) < MAX_SECONDS


@pytest.fixture
def python_victim(serve: Serve, tmp_path: Path) -> Bident:
    """A server with ``echo`` and the slow Python model ``slow``."""
    write_identity(tmp_path / "models", "echo")
    slow = write_identity(tmp_path / "models", "slow")
    config = (slow / "config.pbtxt").read_text().replace('"identity"', '"python"')
    (slow / "config.pbtxt").write_text(config)
    (slow / "1" / "model.py").write_text(SLOW)
    return serve(tmp_path / "models")


SLOW = """
import time
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.01)
        tensors = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", tensor)]) for tensor in tensors]
"""


def test_clients_that_vanish_take_their_requests_along(python_victim: Bident) -> None:
    asked = question("slow")
    assert Client(python_victim).ask(asked).status == 0
    before = resident_mb(python_victim)
    for _ in range(5):
        client = Client(python_victim)
        number = client.begin(STREAM_INFER)
        client.sock.sendall(b"".join(call(other, asked) for other in range(3, 2003, 2)))
        client.sock.sendall(data(number, prefixed(asked) * 1000))
        client.reset()
    # 10,000 requests of 10 ms were left behind; a batch has 8 of them.
    began = time.monotonic()
    assert Client(python_victim).ask(asked).status == 0
    assert time.monotonic() - began < 3
    assert longest(python_victim, 0.2) < MAX_SECONDS
    assert settled(lambda: resident_mb(python_victim)) < before + MAX_GROWTH_MB
    python_victim.check_alive()
    assert "Traceback" not in python_victim.log.read_text(errors="replace")


def test_thousands_of_requests_on_many_streams(python_victim: Bident) -> None:
    """Requests wait with their client once too many are under way."""
    asked = data(1, prefixed(question("slow")) * 150)
    client = Client(python_victim)
    before = resident_mb(python_victim)
    for _ in range(150):
        number = client.begin(STREAM_INFER)
        client.sock.sendall((asked[:5] + struct.pack(">I", number) + asked[9:]) * 8)
    assert longest(python_victim, 2.0) < MAX_SECONDS
    assert resident_mb(python_victim) < before + 200
    client.reset()
    assert longest(python_victim, 0.5) < MAX_SECONDS


def test_a_bomb(victim: Bident) -> None:
    machine = zlib.compressobj(9, wbits=31)
    bomb = b"".join(machine.compress(bytes(1 << 20)) for _ in range(200)) + machine.flush()
    client = Client(victim)
    number = 1
    packed = headers(number, *with_path(INFER), (b"grpc-encoding", b"gzip"))
    client.sock.sendall(packed + data(number, prefixed(bomb, packed=1), END_STREAM))
    assert longest(victim, 0.5) < MAX_SECONDS
    assert client.answer(number).status == Status.INVALID_ARGUMENT
    eventually(lambda: resident_mb(victim) < 300, "the memory is given back")


def test_a_crowd(victim: Bident) -> None:
    with many_files(3000) as count:
        crowd = [Client(victim) for _ in range(count)]
        assert longest(victim, 0.5) < MAX_SECONDS
        assert all(client.ask(question()).status == 0 for client in crowd[::50])
        for client in crowd:
            client.close()
    assert longest(victim, 0.2) < MAX_SECONDS


def _exchange(chance: random.Random) -> bytes:
    """A good connection, with a few things wrong with it."""
    pieces = [PREFACE, WIDE if chance.random() < 0.8 else settings(initial_window_size=chance.randrange(200))]
    for number in range(1, 2 * chance.randrange(1, 8), 2):
        path = chance.choice([INFER, INFER, STREAM_INFER, REFLECTION, "/inference.GRPCInferenceService/ServerMetadata"])
        message = prefixed(question(elements=chance.choice([1, 300])))
        pieces.append(headers(number, *with_path(path)))
        cut = chance.randrange(len(message))
        pieces += [data(number, message[:cut]), data(number, message[cut:], END_STREAM)]
        extras = [
            frames.rst_stream(number, ErrorCode.CANCEL),
            frames.window_update(number, chance.choice([0, 1, (1 << 31) - 1])),
            frame(Kind.PING, 0, 0, bytes(8)),
            frame(Kind.PRIORITY, 0, number, bytes(5)),
            settings(initial_window_size=chance.choice([0, 10, 1 << 20])),
            frame(Kind.GOAWAY, 0, 0, bytes(8)),
            headers(number, flags=END_STREAM),
            frame(Kind.DATA, frames.PADDED, number, b"\x03abc\0\0\0"),
        ]
        if chance.random() < 0.4:
            pieces.insert(chance.randrange(2, len(pieces) + 1), chance.choice(extras))
    if chance.random() < 0.3:
        chance.shuffle(pieces)
    sent = bytearray(b"".join(pieces))
    for _ in range(chance.choice((0, 1, 1, 2, 5))):
        at = chance.randrange(24, len(sent))
        kind = chance.randrange(3)
        if kind == 0:
            sent[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del sent[at : at + chance.choice((1, 4, 9, 40))]
        else:
            sent[at:at] = chance.randbytes(chance.choice((1, 4, 9)))
    return bytes(sent)


def test_damaged_connections(victim: Bident) -> None:
    """Frames of all kinds in the wrong place: what comes back is whole, well-formed frames."""
    chance = random.Random(SEED)
    polite = Client(victim)
    seen: Counter[tuple[int, int]] = Counter()
    warm_mb = 0.0
    for turn in range(1000):
        client = Client(victim, b"")
        sent = _exchange(chance)
        cut = chance.randrange(len(sent))
        with contextlib.suppress(OSError):
            client.sock.sendall(sent[:cut])
            client.sock.sendall(sent[cut:])
            client.sock.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while True:
                came = client.frame()
                assert came.kind in (0, 1, 3, 4, 6, 7, 8), came
                if came.kind in (Kind.GOAWAY, Kind.RST_STREAM):
                    assert came.code != ErrorCode.INTERNAL_ERROR, (came, sent)
                    seen[came.kind, came.code] += 1
        client.close()
        if turn % 50 == 0:
            assert polite.ask(question()).status == 0
        if turn == 300:
            warm_mb = settled(lambda: resident_mb(victim))
    assert settled(lambda: resident_mb(victim)) < warm_mb + 10
    # The run has met what it was made for.
    assert {code for kind, code in seen if kind == Kind.GOAWAY} > {ErrorCode.PROTOCOL_ERROR, ErrorCode.FRAME_SIZE_ERROR}
    assert seen[Kind.RST_STREAM, ErrorCode.PROTOCOL_ERROR] > 20


def test_damaged_messages(victim: Bident) -> None:
    """Each gets an answer: the one of what protobuf reads in it, or that it is no message."""
    chance = random.Random(SEED)
    client = Client(victim)
    statuses: Counter[int] = Counter()
    good = bytearray(question(elements=4))
    for _ in range(3000):
        message = bytearray(good)
        for _ in range(chance.choice((0, 1, 1, 2))):
            message[chance.randrange(len(message))] ^= 1 << chance.randrange(8)
        answer = client.ask(bytes(message))
        statuses[answer.status] += 1
        try:
            meant = pb.ModelInferRequest.FromString(bytes(message))
        except DecodeError:
            assert answer.status == Status.INVALID_ARGUMENT, message.hex()
            continue
        assert answer.status in (Status.OK, Status.INVALID_ARGUMENT, Status.NOT_FOUND), (answer, message.hex())
        if answer.status == Status.OK:
            said = pb.ModelInferResponse.FromString(answer.messages[0])
            assert list(said.raw_output_contents) == list(meant.raw_input_contents)
            assert said.id == meant.id
    assert statuses[Status.OK] > 700
    assert statuses[Status.INVALID_ARGUMENT] > 700
