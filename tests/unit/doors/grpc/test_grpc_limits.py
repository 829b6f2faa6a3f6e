"""What settings make of a gRPC door's limits, and what becomes of work that a thread does for a call."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from grpc_line import Line, LineServer, data, prefixed

from bident.doors.grpc import frames
from bident.doors.grpc.call import Status
from bident.doors.grpc.frames import END_STREAM, ErrorCode
from bident.doors.grpc.limits import GrpcLimits, Keepalive, Patience
from bident.doors.grpc.stream import Stream
from bident.settings import parse_tensor_args

_PACKS = (b"grpc-accept-encoding", b"deflate")
_PACKED = (b"grpc-encoding", b"deflate")


def limits(tmp_path: Path, *flags: str) -> GrpcLimits:
    return GrpcLimits.of(parse_tensor_args([f"--model-repository={tmp_path}", *flags], {}))


def test_defaults_are_those_of_grpc(tmp_path: Path) -> None:
    made = limits(tmp_path)
    assert replace(made, held_bytes=GrpcLimits.held_bytes) == GrpcLimits()
    assert made.keepalive == Keepalive(7200, 20, False, 2, 300, 2, 0, 0)


def test_little_is_held_for_clients_where_there_is_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=3 << 30))
    assert limits(tmp_path).held_bytes == 1 << 30
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=300 << 30))
    assert limits(tmp_path).held_bytes == GrpcLimits.held_bytes


def test_flags_in_milliseconds(tmp_path: Path) -> None:
    made = limits(
        tmp_path,
        "--grpc-keepalive-time=1500",
        "--grpc-keepalive-timeout=2000",
        "--grpc-keepalive-permit-without-calls=true",
        "--grpc-http2-max-pings-without-data=7",
        "--grpc-http2-min-recv-ping-interval-without-data=4000",
        "--grpc-http2-max-ping-strikes=5",
        "--grpc-max-connection-age=60000",
        "--grpc-max-connection-age-grace=6000",
    )
    assert made.keepalive == Keepalive(1.5, 2, True, 7, 4, 5, 60, 6)


@pytest.mark.parametrize(("word", "level"), [("none", 0), ("low", 1), ("medium", 6), ("high", 9)])
def test_levels_of_compression(tmp_path: Path, word: str, level: int) -> None:
    assert limits(tmp_path, f"--grpc-infer-response-compression-level={word}").compression_level == level


def test_patience_refills() -> None:
    patience = Patience(10, 2)
    assert all(patience.spend(1000.0) for _ in range(10))
    assert not patience.spend(1000.0)
    assert patience.spend(1001.0)
    assert patience.spend(2000.0, 10)
    assert not patience.spend(2000.0)


class ThreadedServer(LineServer):
    """Keeps what is to be run as tasks until :meth:`run_all`."""

    def __init__(self) -> None:
        super().__init__(GrpcLimits(compression_level=1))
        self.tasks: list[tuple[Awaitable[None], Stream]] = []

    def run_call(self, answering: Awaitable[None], stream: Stream) -> None:
        self.tasks.append((answering, stream))

    def run_all(self) -> None:
        async def run() -> None:
            while self.tasks:
                await self._wait(*self.tasks.pop(0))

        asyncio.run(run())
        self.settle()


def unpacked(content: bytes) -> list[bytes]:
    messages = []
    while content:
        assert content[0] == 1
        size = int.from_bytes(content[1:5], "big")
        messages.append(zlib.decompress(content[5 : 5 + size]))
        content = content[5 + size :]
    return messages


class TestLargePackedAnswers:
    def test_they_keep_their_order(self) -> None:
        line = Line(ThreadedServer())
        number = line.begin("/test.Echo/Kept", _PACKS)
        (call,) = line.service.streams
        sent = [b"first", bytes(200_000), b"after it", bytes(300_000), b""]
        for message in sent:
            call.send(message)
        call.finish(0, "")
        assert unpacked(line.answer(number).data) == [b"first"]
        line.server.run_all()  # type: ignore[attr-defined]
        answer = line.answer(number)
        assert unpacked(answer.data) == sent
        assert (answer.status, answer.has_ended) == (0, True)

    def test_those_that_wait_count_as_not_taken(self) -> None:
        line = Line(ThreadedServer())
        number = line.begin("/test.Echo/Kept", _PACKS)
        (call,) = line.service.streams
        for _ in range(3):
            call.send(bytes(200_000))
        assert call.unsent == line.server.held.size == 600_000
        line.server.run_all()  # type: ignore[attr-defined]
        assert call.unsent == line.server.held.size == 0
        assert unpacked(line.answer(number).data) == [bytes(200_000)] * 3

    def test_nothing_follows_a_cancelled_call(self) -> None:
        line = Line(ThreadedServer())
        number = line.begin("/test.Echo/Kept", _PACKS)
        line.service.streams[0].send(bytes(200_000))
        line.service.streams[0].finish()
        line.send(frames.rst_stream(number, ErrorCode.CANCEL))
        line.server.run_all()  # type: ignore[attr-defined]
        assert line.answer(number).data == b""
        assert line.server.held.size == 0

    def test_a_failure_ends_the_call(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object) -> bytes:
            raise MemoryError

        monkeypatch.setattr("bident.doors.grpc.outbox.pack", fail)
        line = Line(ThreadedServer())
        number = line.begin("/test.Echo/Kept", _PACKS)
        line.service.streams[0].send(bytes(200_000))
        line.service.streams[0].finish()
        line.server.run_all()  # type: ignore[attr-defined]
        assert line.answer(number).reset == ErrorCode.CANCEL
        assert line.connection.calls.streams == {}
        assert line.server.held.size == 0


class TestLargePackedRequests:
    def send(self, line: Line, *messages: bytes) -> int:
        number = line.begin("/test.Echo/Kept", _PACKED)
        packed = [zlib.compress(message, 0) for message in messages]
        line.send(*(data(number, prefixed(message, packed=1)) for message in packed), data(number, b"", END_STREAM))
        return number

    def test_they_keep_their_order_and_the_end_is_last(self) -> None:
        line = Line(ThreadedServer())
        self.send(line, b"first", bytes(100_000), b"after it", bytes(50_000))
        assert (line.service.got, line.service.ended) == ([b"first"], [])
        line.server.run_all()  # type: ignore[attr-defined]
        assert line.service.got == [b"first", bytes(100_000), b"after it", bytes(50_000)]
        assert line.service.ended == line.service.streams
        assert line.server.held.size == 0

    def test_a_cancelled_call_gets_no_more(self) -> None:
        line = Line(ThreadedServer())
        number = self.send(line, bytes(100_000), b"after it")
        line.send(frames.rst_stream(number, ErrorCode.CANCEL))
        line.server.run_all()  # type: ignore[attr-defined]
        assert line.service.got == []
        assert line.server.held.size == 0

    def test_a_failure_ends_the_call(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object) -> bytes:
            raise MemoryError

        monkeypatch.setattr("bident.doors.grpc.inbox.unpack", fail)
        line = Line(ThreadedServer())
        number = self.send(line, bytes(100_000))
        line.server.run_all()  # type: ignore[attr-defined]
        assert line.answer(number).status == Status.INTERNAL
        assert line.service.cancelled == line.service.streams
        assert line.server.held.size == 0
