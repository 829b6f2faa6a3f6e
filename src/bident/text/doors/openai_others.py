"""``/v1/embeddings``, ``/v1/models``, ``/v1/rerank``, and llama.cpp's ``/tokenize`` and ``/detokenize``."""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bident.errors import Code, ServeError, invalid_arg
from bident.text.answering.asked import RemoteModel
from bident.text.doors import openai_requests
from bident.text.doors.bodies import Bodies
from bident.text.doors.endpoint import route
from bident.text.doors.framing import until_gone
from bident.text.doors.ollama_answers import extras
from bident.text.doors.ollama_requests import required_model
from bident.text.doors.status import OPENAI, json_answer
from bident.text.engine import TextEngine
from bident.text.model import TextModel


class OpenaiOthers:
    """The endpoints of OpenAI's protocol, and of its relatives, that generate nothing."""

    def __init__(self, engine: TextEngine, bodies: Bodies) -> None:
        self._engine = engine
        self._bodies = bodies

    def routes(self) -> list[Route]:
        return [
            route("/v1/embeddings", ("POST",), self.embed, OPENAI),
            route("/v1/models", ("GET",), self.models, OPENAI),
            route("/v1/models/{model:path}", ("GET",), self.model, OPENAI),
            route("/v1/rerank", ("POST",), self.rerank, OPENAI),
            route("/v1/audio/transcriptions", ("POST",), self.transcribe, OPENAI),
            route("/tokenize", ("POST",), self.tokenize, OPENAI),
            route("/detokenize", ("POST",), self.detokenize, OPENAI),
        ]

    async def embed(self, request: Request) -> Response:
        async with self._bodies.object(request) as fields:
            asked = openai_requests.embed_request(fields)
            as_base64 = fields.choice("encoding_format", ("float", "base64"), "float") == "base64"
            fields.log_strays("/v1/embeddings")
        embeddings = await until_gone(request, self._engine.embed(asked))
        write = _base64 if as_base64 else list
        data = [
            {"object": "embedding", "index": index, "embedding": write(vector)}
            for index, vector in enumerate(embeddings.vectors)
        ]
        tokens = embeddings.usage.prompt_tokens
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        answer = {"object": "list", "data": data, "model": asked.model, "usage": usage}
        return json_answer(answer | extras(embeddings.usage))

    async def models(self, _: Request) -> Response:
        inside, remote = await self._engine.models()
        return json_answer({"object": "list", "data": [*map(_model_object, inside), *map(_remote_object, remote)]})

    async def model(self, request: Request) -> Response:
        name = request.path_params["model"]
        if remote := self._engine.remote(name):
            return json_answer(_remote_object(remote) | {"id": name})
        found = await self._engine.library.find(name)
        return json_answer(_model_object(found) | {"id": name})

    async def rerank(self, request: Request) -> Response:
        async with self._bodies.object(request) as fields:
            asked = openai_requests.rerank_request(fields)
            with_documents = fields.flag("return_documents")
            fields.ignore("max_chunks_per_doc", "max_tokens_per_doc")
            fields.log_strays("/v1/rerank")
        ranked = await until_gone(request, self._engine.rerank(asked))
        results: list[dict[str, Any]] = [{"index": each.index, "relevance_score": each.score} for each in ranked]
        if with_documents:
            results = [each | {"document": {"text": asked.documents[each["index"]]}} for each in results]
        return json_answer({"object": "list", "model": asked.model, "results": results})

    async def transcribe(self, _: Request) -> Response:
        raise ServeError(Code.UNSUPPORTED, "/v1/audio/transcriptions is not supported: no model here hears")

    async def tokenize(self, request: Request) -> Response:
        async with self._bodies.object(request) as fields:
            model = required_model(fields)
            names = [name for name in ("content", "prompt", "text") if fields.raw(name) is not None]
            if not names:
                raise invalid_arg("content is required: the text to tokenise")
            text = fields.text(names[0])
            special = fields.flag("add_special")
            fields.log_strays("/tokenize")
        tokens = await until_gone(request, self._engine.tokenize(model, text, add_special=special))
        return json_answer({"tokens": [*tokens]})

    async def detokenize(self, request: Request) -> Response:
        async with self._bodies.object(request) as fields:
            model = required_model(fields)
            tokens = fields.elements("tokens", "a list of tokens")
            if fields.raw("tokens") is None or not all(type(each) is int for each in tokens):
                raise fields.wrong("tokens", "a list of tokens, which are whole numbers")
            fields.log_strays("/detokenize")
        return json_answer({"content": await until_gone(request, self._engine.detokenize(model, tokens))})


def _model_object(model: TextModel) -> dict[str, Any]:
    return {
        "id": model.name.short,
        "object": "model",
        "created": int(model.modified_at.timestamp()),
        "owned_by": model.name.namespace,
    }


def _remote_object(model: RemoteModel) -> dict[str, Any]:
    """A model of another server, whose address takes the owner's place."""
    return {"id": model.name, "object": "model", "created": 0, "owned_by": model.url}


def _base64(vector: Sequence[float]) -> str:
    """32-bit floats, little-endian: what OpenAI's clients ask for unless told otherwise."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
