"""Clients of the gRPC door that speak HTTP/2 by hand."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hpack import Decoder

from benchmarks.servers import HOST, Bident
from bident.doors.grpc import frames
from bident.doors.grpc.frames import END_STREAM, PREFACE, Kind
from bident.doors.grpc.messages import pb
from hostile import DEADLINE_SECONDS
from tests.unit.doors.grpc.grpc_line import Answer, Frame, data, headers, prefixed, settings, with_path

INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM_INFER = "/inference.GRPCInferenceService/ModelStreamInfer"
WIDE = settings(initial_window_size=1 << 24) + frames.window_update(0, 1 << 30)
"""What a client says that reads all it gets."""


def question(model: str = "echo", *, elements: int = 4, datatype: str = "FP32") -> bytes:
    """A request to an identity model, which answers with as much."""
    request = pb.ModelInferRequest(model_name=model)
    request.inputs.add(name="X", datatype=datatype, shape=[1, elements])
    request.raw_input_contents.append(struct.pack("<f", 1.5) * elements)
    text: bytes = request.SerializeToString()
    return text


def call(number: int, message: bytes, path: str = INFER) -> bytes:
    """The frames of a unary call."""
    return headers(number, *with_path(path)) + data(number, prefixed(message), END_STREAM)


class Client:
    """One connection."""

    def __init__(self, server: Bident, hello: bytes = PREFACE + WIDE, *, receive_buffer: int = 0) -> None:
        self.sock = socket.socket()
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(DEADLINE_SECONDS)
        self.sock.connect((HOST, server.grpc_port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.sendall(hello)
        self._decoder = Decoder(max_header_list_size=1 << 20)
        self._rest = bytearray()
        self._next = 1

    def begin(self, path: str) -> int:
        """Begin a streaming call; its stream."""
        number = self._next
        self._next += 2
        self.sock.sendall(headers(number, *with_path(path)))
        return number

    def ask(self, message: bytes) -> Answer:
        """The answer to a ModelInfer."""
        number = self._next
        self._next += 2
        self.sock.sendall(call(number, message))
        return self.answer(number)

    def answer(self, number: int) -> Answer:
        """What comes on a stream until it ends; ConnectionError when the connection does."""
        answer = Answer()
        while not answer.has_ended and answer.reset is None:
            self._add(answer, number, self.frame())
        return answer

    def frame(self) -> Frame:
        """The next frame."""
        while len(self._rest) < 9 or len(self._rest) < 9 + int.from_bytes(self._rest[:3], "big"):
            received = self.sock.recv(1 << 18)
            if not received:
                raise ConnectionError("closed by the server")
            self._rest += received
        end = 9 + int.from_bytes(self._rest[:3], "big")
        whole = bytes(self._rest[:end])
        del self._rest[:end]
        return Frame(whole[3], whole[4], int.from_bytes(whole[5:9], "big"), whole[9:])

    def _add(self, answer: Answer, number: int, came: Frame) -> None:
        # Every header block is decoded: the table of HPACK's belongs to the connection.
        fields = self._decoder.decode(came.payload, raw=True) if came.kind == Kind.HEADERS else []
        if came.stream != number:
            return
        if came.kind == Kind.HEADERS:
            answer.trailers.update({bytes(name): bytes(value) for name, value in fields})
        elif came.kind == Kind.DATA:
            answer.data += came.payload
        elif came.kind == Kind.RST_STREAM:
            answer.reset = came.code
        answer.has_ended |= came.kind in (Kind.HEADERS, Kind.DATA) and bool(came.flags & END_STREAM)

    def close(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        """Go in the rudest way."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


@contextmanager
def flooding(server: Bident, pieces: Iterator[bytes], hello: bytes = PREFACE + WIDE) -> Iterator[Any]:
    """Meanwhile a client sends ``pieces`` as fast as it can, and reads; thrown out, it connects anew."""
    is_over = threading.Event()

    def read(sock: socket.socket) -> None:
        try:
            while sock.recv(1 << 20):
                pass
        except OSError:
            pass

    def send() -> None:
        while not is_over.is_set():
            client = Client(server, hello)
            threading.Thread(target=read, args=(client.sock,), daemon=True).start()
            try:
                while not is_over.is_set():
                    client.sock.sendall(next(pieces))
            except OSError:
                pass
            # While the reader waits in the kernel, closing alone would not end the connection.
            with contextlib.suppress(OSError):
                client.sock.shutdown(socket.SHUT_RDWR)
            client.reset()

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield sender
    finally:
        is_over.set()
        sender.join(DEADLINE_SECONDS)


def longest(server: Bident, seconds: float) -> float:
    """How long the slowest of a polite client's calls took, in seconds; each is answered, and rightly."""
    client = Client(server)
    slowest = 0.0
    end = time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        answer = client.ask(question())
        slowest = max(slowest, time.monotonic() - began)
        assert answer.status == 0, answer
        said = pb.ModelInferResponse.FromString(answer.messages[0])
        assert said.raw_output_contents[0] == struct.pack("<f", 1.5) * 4
    client.close()
    return slowest
