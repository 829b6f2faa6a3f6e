"""The bare tick-batching loop over gRPC: the least work that can answer an iris ModelInfer call.

    python -m benchmarks.peers.bare_grpc MODEL.onnx PORT

Everything that arrives in one turn of the event loop runs as one batch, inline. It knows the frames
that well-behaved clients send and none of HTTP/2's rules, keeps no windows, validates nothing,
counts nothing and logs nothing, so it is no server: it is the yardstick for what Bident's HTTP/2,
routing, validation, scheduling and statistics cost.
"""

from __future__ import annotations

import asyncio
import sys

import numpy as np
import onnxruntime as ort
import uvloop
from hpack import Decoder
from tritonclient.grpc.service_pb2 import ModelInferRequest, ModelInferResponse

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 4, 6, 8
END_STREAM, END_HEADERS, ACK, PRIORITY = 1, 4, 1, 0x20
_FRAME_HEAD = 9
_GRANT = 1 << 28
"""So many bytes are let in before the client is granted as many again."""


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One HTTP/2 frame."""
    return b"%b%c%c%b%b" % (len(payload).to_bytes(3, "big"), kind, flags, stream.to_bytes(4, "big"), payload)


def _literal(name: bytes, value: bytes) -> bytes:
    return b"\x00%c%b%c%b" % (len(name), name, len(value), value)


_HEAD = b"\x88" + _literal(b"content-type", b"application/grpc")
_TRAILERS = _literal(b"grpc-status", b"0")
_HEAD_START = len(_HEAD).to_bytes(3, "big") + bytes([HEADERS, END_HEADERS])
_TRAILERS_START = len(_TRAILERS).to_bytes(3, "big") + bytes([HEADERS, END_HEADERS | END_STREAM])
_HELLO = frame(SETTINGS, 0, 0, b"\x00\x04\x01\x00\x00\x00") + frame(WINDOW_UPDATE, 0, 0, (1 << 30).to_bytes(4, "big"))


class Batcher:
    """Gathers the calls of one loop turn, runs them together and writes each its answer."""

    def __init__(self, model_path: str, loop: asyncio.AbstractEventLoop) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = ort.InferenceSession(model_path, options, providers=["CPUExecutionProvider"])
        self._loop = loop
        self._pending: list[tuple[asyncio.Transport, bytes, bytes, int]] = []

    def submit(self, transport: asyncio.Transport, stream: bytes, message: bytes) -> None:
        """Queue the call on ``stream``; the first of a turn schedules the batch for the turn's end."""
        request = ModelInferRequest.FromString(message)
        if not self._pending:
            self._loop.call_soon(self._flush)
        self._pending.append((transport, stream, request.raw_input_contents[0], request.inputs[0].shape[0]))

    def _flush(self) -> None:
        batch, self._pending = self._pending, []
        merged = np.frombuffer(b"".join([raw for _, _, raw, _ in batch]), np.float32).reshape(-1, 4)
        labels, probabilities = self._session.run(None, {"X": merged})
        answers: dict[asyncio.Transport, list[bytes]] = {}
        start = 0
        for transport, stream, _, rows in batch:
            stop = start + rows
            message = _answer(labels[start:stop].tobytes(), probabilities[start:stop].tobytes(), rows)
            start = stop
            size = len(message)
            pieces = (_HEAD_START, stream, _HEAD, (size + 5).to_bytes(3, "big"), b"\x00\x00", stream, b"\x00")
            tail = (size.to_bytes(4, "big"), message, _TRAILERS_START, stream, _TRAILERS)
            answers.setdefault(transport, []).append(b"".join((*pieces, *tail)))
        for transport, parts in answers.items():
            transport.write(b"".join(parts))


def _answer(labels: bytes, probabilities: bytes, rows: int) -> bytes:
    response = ModelInferResponse(model_name="iris_sklearn", model_version="1")
    response.outputs.add(name="label", datatype="INT64", shape=(rows, 1))
    response.outputs.add(name="probabilities", datatype="FP32", shape=(rows, 3))
    response.raw_output_contents.extend((labels, probabilities))
    return response.SerializeToString()


class Connection(asyncio.Protocol):
    """One connection. Every call on it, whose message fits one DATA frame, is taken for an iris ModelInfer."""

    def __init__(self, batcher: Batcher) -> None:
        self._batcher = batcher
        self._unread = b""
        self._greeted = False
        self._received = 0
        self._decoder = Decoder()
        self._known: set[bytes] = set()
        """Header blocks that leave the decoder's dynamic table as it is."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._transport.write(_HELLO)

    def data_received(self, data: bytes) -> None:
        data = self._unread + data if self._unread else data
        at, end = 0, len(data)
        if not self._greeted:
            if end < len(PREFACE):
                self._unread = data
                return
            self._greeted = True
            at = len(PREFACE)
        while end - at >= _FRAME_HEAD:
            size = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
            start = at + _FRAME_HEAD
            if end - start < size:
                break
            self._take(data[at + 3], data[at + 4], data[at + 5 : start], data[start : start + size])
            at = start + size
        self._unread = data[at:]

    def _take(self, kind: int, flags: int, stream: bytes, payload: bytes) -> None:
        if kind == DATA:
            self._received += len(payload)
            if self._received > _GRANT:
                self._transport.write(frame(WINDOW_UPDATE, 0, 0, self._received.to_bytes(4, "big")))
                self._received = 0
            if payload:
                self._batcher.submit(self._transport, stream, payload[5:])
        elif kind == HEADERS:
            self._read_headers(payload[5:] if flags & PRIORITY else payload)
        elif kind == SETTINGS and not flags & ACK:
            self._transport.write(frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            self._transport.write(frame(PING, ACK, 0, payload))

    def _read_headers(self, block: bytes) -> None:
        if block in self._known:
            return
        table = self._decoder.header_table
        before = len(table.dynamic_entries)
        self._decoder.decode(block, raw=True)
        if len(table.dynamic_entries) == before:
            self._known.add(block)
        else:
            self._known.clear()


async def serve(model_path: str, port: int) -> None:
    """Listen on 127.0.0.1 until the process is ended."""
    loop = asyncio.get_running_loop()
    batcher = Batcher(model_path, loop)
    server = await loop.create_server(lambda: Connection(batcher), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], int(sys.argv[2])))
