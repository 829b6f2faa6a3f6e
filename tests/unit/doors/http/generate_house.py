"""The generate routes over models that a test plays by hand, and strict reading of what they answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from http_line import Line, LineServer, post

from bident.doors.http.generate import Generate
from bident.doors.http.routes import Routes
from bident.errors import ServeError, invalid_arg
from bident.model.config import ModelConfig
from bident.wire.datatypes import DATATYPES
from bident.wire.infer import Column, InferRequest, InferResponse, Outcome
from tests.unit.doors.played_engine import PlayedEngine, PlayedServable
from tests.unit.engine.engine_fakes import model_config

TALK_IO = """
input [ { name: "PLAN" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "NUMBERS" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "TEXT" data_type: TYPE_STRING dims: [ -1 ] } ]
"""
DECOUPLED = "model_transaction_policy { decoupled: true }"


def talk(text: str = DECOUPLED) -> ModelConfig:
    """A model that answers a string with numbers and text."""
    return model_config(text, io=TALK_IO, batch=0, name="talk")


def generate_routes(engine: PlayedEngine) -> Routes:
    routes = Routes()
    Generate(engine).routes_into(routes)  # type: ignore[arg-type]
    return routes


class Stage:
    """One client of one played model."""

    def __init__(
        self, config: ModelConfig | None = None, play: Callable[[InferRequest], None] = lambda request: None
    ) -> None:
        config = config or talk()
        self.servable = PlayedServable(config, play)
        self.engine = PlayedEngine({config.name: self.servable})
        self.name = config.name
        self.line = Line(LineServer(generate_routes(self.engine)))

    def ask(self, document: Any = None, *headers: str, route: str = "generate_stream", version: str = "1.1") -> None:
        """Ask the model; ``document`` is JSON's, or the body's bytes."""
        body = document if isinstance(document, bytes) else json.dumps(document or {"PLAN": "x"}).encode()
        self.line.send(post(f"/v2/models/{self.name}/{route}", body, *headers, version=version))

    @property
    def request(self) -> InferRequest:
        """The one request that came through."""
        (request,) = self.servable.requests
        return request

    def reply(self, **members: Any) -> Outcome:
        """Have the model answer its last request; see :func:`response`."""
        return self.servable.requests[-1].reply(response(self.servable.requests[-1], **members))

    @property
    def answers(self) -> list[Whole]:
        return read_whole(self.line.transport.written)

    @property
    def refusal(self) -> tuple[int, str]:
        """Status and message of the one answer, which is an error."""
        (answer,) = self.answers
        assert answer.headers[b"content-type"] == b"application/json"
        document = json.loads(answer.body)
        assert list(document) == ["error"]
        return answer.status, document["error"]


def response(
    request: InferRequest,
    numbers: list[float] | None = None,
    text: list[bytes] | None = None,
    *,
    parameters: dict[str, Any] | None = None,
    error: ServeError | None = None,
    final: bool = False,
) -> InferResponse:
    """An answer of the model ``talk``; without members the end of the stream."""
    columns = []
    if numbers is not None:
        columns.append(Column("NUMBERS", DATATYPES["FP32"], np.array(numbers, np.float32)))
    if text is not None:
        columns.append(Column("TEXT", DATATYPES["BYTES"], np.array(text, object)))
    answer = InferResponse("talk", "1", request.id, columns, 0, -1)
    answer.parameters = parameters
    answer.error = error
    answer.final = final
    return answer


def broke(message: str = "broke") -> ServeError:
    return invalid_arg(message)


class Whole(NamedTuple):
    """An answer; ``chunks`` is None if it came in one piece, ``ended`` whether it came to its end."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes
    chunks: list[bytes] | None = None
    ended: bool = True


def read_whole(data: bytes) -> list[Whole]:
    """The answers in ``data``, read strictly, with or without chunks; the last one may be incomplete."""
    answers: list[Whole] = []
    while data:
        head, end, data = data.partition(b"\r\n\r\n")
        assert end, head
        status_line, *lines = head.split(b"\r\n")
        headers = dict(line.lower().split(b": ", 1) for line in lines)
        assert len(headers) == len(lines), lines
        status = int(status_line.split()[1])
        if b"content-length" in headers:
            assert b"transfer-encoding" not in headers
            size = int(headers[b"content-length"])
            assert len(data) >= size
            answers.append(Whole(status, headers, data[:size]))
            data = data[size:]
        elif headers.get(b"transfer-encoding") == b"chunked":
            chunks, ended, data = read_chunks(data)
            answers.append(Whole(status, headers, b"".join(chunks), chunks, ended))
        else:
            answers.append(Whole(status, headers, data))
            data = b""
    return answers


def read_chunks(data: bytes) -> tuple[list[bytes], bool, bytes]:
    """The chunks at the start of ``data``, whether the last one is among them, and what follows."""
    chunks: list[bytes] = []
    while data.strip(b"0"):
        word, end, data = data.partition(b"\r\n")
        assert end, word
        size = int(word, 16)
        assert data[size : size + 2] == b"\r\n", (word, data[:100])
        chunk, data = data[:size], data[size + 2 :]
        if not size:
            return chunks, True, data
        chunks.append(chunk)
    return chunks, False, b""


def events(answer: Whole) -> list[Any]:
    """The documents of an event stream, read strictly."""
    assert answer.headers[b"content-type"] == b"text/event-stream; charset=utf-8"
    *whole, rest = answer.body.split(b"\n\n")
    assert rest == b"", rest
    assert all(event.startswith(b"data: ") for event in whole)
    return [json.loads(event.removeprefix(b"data: ")) for event in whole]
