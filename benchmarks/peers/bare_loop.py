"""The bare tick-batching loop: the least work that can answer an iris request over HTTP.

    python -m benchmarks.peers.bare_loop MODEL.onnx PORT

Everything that arrives in one turn of the event loop runs as one batch, inline. It routes nothing,
validates nothing, counts nothing and logs nothing, so it is no server: it is the yardstick for what
Bident's routing, validation, scheduling and statistics cost.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import httptools
import numpy as np
import onnxruntime as ort
import orjson
import uvloop
from numpy.typing import NDArray

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


class Batcher:
    """Gathers the requests of one loop turn, runs them together and writes each its answer."""

    def __init__(self, model_path: str, loop: asyncio.AbstractEventLoop) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = ort.InferenceSession(model_path, options, providers=["CPUExecutionProvider"])
        self._loop = loop
        self._pending: list[tuple[asyncio.Transport, NDArray[np.float32]]] = []

    def submit(self, transport: asyncio.Transport, rows: NDArray[np.float32]) -> None:
        """Queue ``rows`` [n, 4]; the first of a turn schedules the batch for the turn's end."""
        if not self._pending:
            self._loop.call_soon(self._flush)
        self._pending.append((transport, rows))

    def _flush(self) -> None:
        batch, self._pending = self._pending, []
        merged = batch[0][1] if len(batch) == 1 else np.concatenate([rows for _, rows in batch])
        labels, probabilities = self._session.run(None, {"X": merged})
        all_labels, all_probabilities = labels.tolist(), probabilities.reshape(-1).tolist()
        start = 0
        for transport, rows in batch:
            stop = start + len(rows)
            body = _answer(all_labels[start:stop], all_probabilities[3 * start : 3 * stop])
            transport.write(HEAD % len(body) + body)
            start = stop


def _answer(labels: list[int], probabilities: list[float]) -> bytes:
    count = len(labels)
    return orjson.dumps(
        {
            "model_name": "iris_sklearn",
            "model_version": "1",
            "outputs": [
                {"name": "label", "datatype": "INT64", "shape": [count, 1], "data": labels},
                {"name": "probabilities", "datatype": "FP32", "shape": [count, 3], "data": probabilities},
            ],
        }
    )


class Connection(asyncio.Protocol):
    """One keep-alive connection. Every complete message is taken for an iris request."""

    __slots__ = ("_batcher", "_chunks", "_parser", "_transport")

    def __init__(self, batcher: Batcher) -> None:
        self._batcher = batcher
        self._chunks: list[bytes] = []

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks = []
        tensor = orjson.loads(body)["inputs"][0]
        rows = np.array(tensor["data"], np.float32).reshape(tensor["shape"])
        self._batcher.submit(self._transport, rows)


async def serve(model_path: str, port: int) -> None:
    """Listen on 127.0.0.1 until the process is ended."""
    loop = asyncio.get_running_loop()
    batcher = Batcher(model_path, loop)
    server = await loop.create_server(lambda: Connection(batcher), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], int(sys.argv[2])))
