"""The gRPC door on real sockets: grpc-core as client, memory under thousands of connections."""

from __future__ import annotations

import contextlib
import gzip
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from grpc_line import data, headers, prefixed, read_frames, settings, with_path
from grpc_sockets import ListeningServer, listening

from bident.doors.grpc.frames import END_STREAM, PREFACE, Kind
from bident.doors.grpc.limits import GrpcLimits
from bident.tls.context import server_context
from certificates import AUTHORITY, certificate, key

_ANY_SIZE = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@pytest.fixture
def server() -> Iterator[ListeningServer]:
    with listening() as server:
        yield server


@contextlib.contextmanager
def channel(server: ListeningServer, *options: tuple[str, Any]) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{server.port}", options=[*_ANY_SIZE, *options]) as channel:
        yield channel


def unary(channel: grpc.Channel, method: str = "Unary") -> Callable[..., Any]:
    return channel.unary_unary(f"/test.Echo/{method}", bytes, bytes)


def eventually(condition: Callable[[], Any], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class TestGrpcCore:
    @pytest.mark.parametrize("size", [0, 1, 16379, 16380, 65_531, 1 << 20, 30 << 20])
    def test_messages_of_every_size(self, server: ListeningServer, size: int) -> None:
        message = bytes(range(256)) * (size // 256) + bytes(size % 256)
        with channel(server) as open_channel:
            assert unary(open_channel)(message, timeout=30) == message

    def test_many_calls_at_once(self, server: ListeningServer) -> None:
        with channel(server) as open_channel:
            call = unary(open_channel)
            futures = [call.future(b"%d" % index) for index in range(3000)]
            assert [future.result(30) for future in futures] == [b"%d" % index for index in range(3000)]

    def test_thousands_of_messages_on_a_stream(self, server: ListeningServer) -> None:
        messages = [b"%d" % index * (index % 50) for index in range(5000)]
        with channel(server) as open_channel:
            call = open_channel.stream_stream("/test.Echo/Stream", bytes, bytes)
            assert list(call(iter(messages), timeout=30)) == messages

    def test_large_messages_on_a_stream(self, server: ListeningServer) -> None:
        with channel(server) as open_channel:
            call = open_channel.stream_stream("/test.Echo/Stream", bytes, bytes)
            assert [len(message) for message in call(iter([bytes(1 << 20)] * 40), timeout=30)] == [1 << 20] * 40

    def test_metadata_and_errors(self, server: ListeningServer) -> None:
        with channel(server) as open_channel:
            with pytest.raises(grpc.RpcError) as caught:
                unary(open_channel, "Nothing")(b"", timeout=10)
            assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
            with pytest.raises(grpc.RpcError) as caught:
                unary(open_channel, "Fault")(b"", timeout=10)
            assert caught.value.code() == grpc.StatusCode.INTERNAL

    def test_deadlines_and_cancelling_reach_the_service(self, server: ListeningServer) -> None:
        with channel(server) as open_channel:
            with pytest.raises(grpc.RpcError) as caught:
                unary(open_channel, "Later")(b"", timeout=0.1)
            assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            eventually(lambda: len(server.service.cancelled) == 1)
            future = unary(open_channel, "Later").future(b"")
            eventually(lambda: len(server.service.later) == 2)
            future.cancel()
            eventually(lambda: len(server.service.cancelled) == 2)

    @pytest.mark.parametrize("packing", [grpc.Compression.Gzip, grpc.Compression.Deflate])
    @pytest.mark.parametrize("size", [100, 3_000_000])
    def test_compression_both_ways(self, packing: grpc.Compression, size: int) -> None:
        message = b"compressible " * (size // 13)
        with listening(GrpcLimits(compression_level=6)) as server, channel(server) as open_channel:
            assert unary(open_channel)(message, compression=packing, timeout=30) == message
            call = open_channel.stream_stream("/test.Echo/Stream", bytes, bytes)
            sent = [message, b"small", message[:-1], b""]
            assert list(call(iter(sent), compression=packing, timeout=30)) == sent
            assert server.server.held.size == 0

    def test_a_bomb_is_bounded(self) -> None:
        with listening(GrpcLimits(message_bytes=1 << 20)) as server, socket.socket() as client:
            client.connect(("127.0.0.1", server.port))
            bomb = gzip.compress(bytes(64 << 20))
            fields = (*with_path("/test.Echo/Unary"), (b"grpc-encoding", b"gzip"))
            client.sendall(PREFACE + settings() + headers(1, *fields) + data(1, prefixed(bomb, packed=1), END_STREAM))
            assert b"larger than max" in _read_until(client, Kind.HEADERS)

    def test_draining_sends_a_client_to_a_new_connection_and_loses_no_call(self, server: ListeningServer) -> None:
        with channel(server) as open_channel:
            future = unary(open_channel, "Later").future(b"")
            eventually(lambda: server.service.later)
            server.run(lambda: setattr(server.server, "is_draining", True))
            server.run(lambda: server.service.later[0].reply(b"done"))
            assert future.result(10) == b"done"
            eventually(lambda: server.run(lambda: server.server.connection_count) == 0)

    def test_stopping_ends_streams_with_a_status(self) -> None:
        with listening() as server:
            open_channel = grpc.insecure_channel(f"127.0.0.1:{server.port}")
            answers = open_channel.stream_stream("/test.Echo/Kept", bytes, bytes)(iter(()))
            eventually(lambda: server.service.streams)
        with pytest.raises(grpc.RpcError) as caught:
            list(answers)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert caught.value.details() == "Server exiting"
        open_channel.close()


def _read_until(client: socket.socket, kind: Kind) -> bytes:
    """Everything up to the first frame of ``kind``."""
    client.settimeout(10)
    got = b""
    while not any(frame.kind == kind for frame in read_frames(got)):
        piece = client.recv(65536)
        assert piece, got
        got += piece
    return got


def test_thousands_of_connections(server: ListeningServer) -> None:
    """Each costs kilobytes; all are served; nothing remains."""
    before = psutil.Process().memory_info().rss
    clients = []
    hello = PREFACE + settings()
    try:
        for _ in range(2000):
            client = socket.create_connection(("127.0.0.1", server.port))
            client.sendall(hello + headers(1) + data(1, prefixed(b"x"), END_STREAM))
            clients.append(client)
        eventually(lambda: len(server.service.got) == 2000, 30)
        assert psutil.Process().memory_info().rss - before < 2000 * 30_000
        for client in clients[::500]:
            assert prefixed(b"x") in _read_until(client, Kind.DATA)
    finally:
        for client in clients:
            client.close()
    eventually(lambda: server.run(lambda: server.server.connection_count) == 0)


class TestTls:
    def credentials(self, *, with_own: bool = False) -> grpc.ChannelCredentials:
        own = (Path(key("client")).read_bytes(), Path(certificate("client")).read_bytes()) if with_own else (None, None)
        return grpc.ssl_channel_credentials(Path(AUTHORITY).read_bytes(), *own)

    @pytest.mark.parametrize("mutual", [False, True])
    def test_calls_over_tls(self, mutual: bool) -> None:
        context = server_context(
            certificate("server"), key("server"), AUTHORITY if mutual else "", mutual=mutual, protocols=["h2"]
        )
        with listening(context=context) as server:
            address = f"localhost:{server.port}"
            with grpc.secure_channel(address, self.credentials(with_own=mutual), options=_ANY_SIZE) as secure:
                message = bytes(3 << 20)
                assert unary(secure)(message, timeout=20) == message
                call = secure.stream_stream("/test.Echo/Stream", bytes, bytes)
                assert list(call(iter([b"a", b"b"]), timeout=20)) == [b"a", b"b"]
            eventually(lambda: server.run(lambda: server.server.connection_count) == 0)
            if mutual:
                with grpc.secure_channel(address, self.credentials()) as stranger, pytest.raises(grpc.RpcError):
                    unary(stranger)(b"", timeout=5)
            with grpc.insecure_channel(address) as plain:
                with pytest.raises(grpc.RpcError) as caught:
                    unary(plain)(b"", timeout=5)
                assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
