"""Ollama's endpoints about models: which there are, which are loaded, and how they come and go."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from bident import __version__
from bident.errors import ServeError, invalid_arg
from bident.text.doors.bodies import Bodies, parts
from bident.text.doors.endpoint import route
from bident.text.doors.fields import Fields
from bident.text.doors.framing import NDJSON, begun, line, streamed, until_gone
from bident.text.doors.models import card_object, listed_object, remote_card, remote_object, running_object
from bident.text.doors.ollama_requests import message, required_model
from bident.text.doors.status import OLLAMA, json_answer
from bident.text.engine import TextEngine
from bident.text.model import TextModel
from bident.text.names import ModelName
from bident.text.store.making import Creation

VERSION = "0.14.0"
"""Of the API that is spoken here: clients leave features out for servers that are too old."""
_NO_ACCOUNTS = "forbidden: this server has no accounts and asks no cloud; its models run on this machine"


class OllamaLibrary:
    """The endpoints that ask no model anything."""

    def __init__(self, engine: TextEngine, bodies: Bodies) -> None:
        self._engine = engine
        self._bodies = bodies

    def routes(self) -> list[Route]:
        return [
            route("/", ("GET",), _running, OLLAMA),
            route("/api/version", ("GET",), _version, OLLAMA),
            route("/api/status", ("GET",), _status, OLLAMA),
            route("/api/tags", ("GET",), self.tags, OLLAMA),
            route("/api/ps", ("GET",), self.ps, OLLAMA),
            route("/api/show", ("POST",), self.show, OLLAMA),
            route("/api/create", ("POST",), self.create, OLLAMA),
            route("/api/copy", ("POST",), self.copy, OLLAMA),
            route("/api/delete", ("DELETE",), self.delete, OLLAMA),
            route("/api/pull", ("POST",), self.pull, OLLAMA),
            route("/api/push", ("POST",), self.push, OLLAMA),
            route("/api/blobs/{digest}", ("HEAD",), self.has_blob, OLLAMA),
            route("/api/blobs/{digest}", ("POST",), self.put_blob, OLLAMA),
            route("/api/me", ("POST",), _no_accounts, OLLAMA),
            route("/api/signout", ("POST",), _no_accounts, OLLAMA),
            route("/api/user/keys/{key}", ("DELETE",), _no_accounts, OLLAMA),
            route("/api/experimental/{path:path}", ("GET", "POST"), _no_accounts, OLLAMA),
        ]

    async def tags(self, _: Request) -> Response:
        inside, remote = await self._engine.models()
        return json_answer({"models": [*map(listed_object, inside), *map(remote_object, remote)]})

    async def ps(self, _: Request) -> Response:
        running = [running_object(each) for each in self._engine.residency.running()]
        return json_answer({"models": sorted(running, key=lambda each: str(each["expires_at"]), reverse=True)})

    async def show(self, request: Request) -> Response:
        async with self._bodies.object(request) as fields:
            model = required_model(fields)
            verbose = fields.flag("verbose")
            fields.ignore("system", "template", "options")
            fields.log_strays("/api/show")
        if remote := self._engine.remote(model):
            return json_answer(remote_card(remote))
        return json_answer(card_object(await self._engine.library.show(model, verbose=verbose)))

    async def create(self, request: Request) -> Response:
        async with self._bodies.object(request) as fields:
            creation = _creation(fields)
            stream = fields.flag("stream", True)
            fields.log_strays("/api/create")
        return await _progress(request, self._engine.library.create(creation), stream)

    async def copy(self, request: Request) -> Response:
        async with self._bodies.object(request) as fields:
            source, destination = fields.text("source"), fields.text("destination")
        if not source or not destination:
            raise invalid_arg(f"{'destination' if source else 'source'} is required")
        await self._engine.library.copy(source, destination)
        return Response()

    async def delete(self, request: Request) -> Response:
        async with self._bodies.object(request) as fields:
            model = required_model(fields)
        found: TextModel | None = None
        with contextlib.suppress(ServeError):  # one that cannot be used may be deleted too
            found = await self._engine.library.find(model)
        await self._engine.library.delete(model)
        if found is not None:
            await self._engine.residency.unload(found)
        return Response()

    async def pull(self, request: Request) -> Response:
        """``from`` is ours: where to pull from, if the name does not say it."""
        async with self._bodies.object(request) as fields:
            model = required_model(fields)
            source = fields.text("from")
            insecure = fields.flag("insecure")
            stream = fields.flag("stream", True)
            fields.ignore("username", "password")
            fields.log_strays("/api/pull")
        statuses = self._engine.library.pull(source or model, model if source else None, insecure=insecure)
        return await _progress(request, statuses, stream)

    async def push(self, request: Request) -> Response:
        async with self._bodies.object(request) as fields:
            model = required_model(fields)
            insecure = fields.flag("insecure")
            stream = fields.flag("stream", True)
            fields.ignore("username", "password")
            fields.log_strays("/api/push")
        return await _progress(request, self._engine.library.push(model, insecure=insecure), stream)

    async def has_blob(self, request: Request) -> Response:
        there = await self._engine.library.has_blob(request.path_params["digest"])
        return Response(status_code=200 if there else 404)

    async def put_blob(self, request: Request) -> Response:
        new = await self._engine.library.put_blob(request.path_params["digest"], parts(request))
        return Response(status_code=201 if new else 200)


async def _running(_: Request) -> Response:
    return PlainTextResponse("Ollama is running")


async def _version(_: Request) -> Response:
    return json_answer({"version": VERSION, "bident": __version__})


async def _status(_: Request) -> Response:
    return json_answer({"cloud": {"disabled": True, "source": "none"}})


async def _no_accounts(_: Request) -> Response:
    return OLLAMA.answer(403, _NO_ACCOUNTS)


async def _progress(request: Request, statuses: AsyncIterator[dict[str, Any]], stream: bool) -> Response:
    """The statuses of long work, each as it comes or the last of them alone."""
    if not stream:
        return json_answer(await until_gone(request, _last(statuses)))
    return streamed(_lines(await begun(request, statuses)), NDJSON, OLLAMA, line)


async def _last(statuses: AsyncIterator[dict[str, Any]]) -> dict[str, Any]:
    last: dict[str, Any] = {}
    async for status in statuses:
        last = status
    return last


async def _lines(statuses: AsyncGenerator[dict[str, Any], None]) -> AsyncGenerator[bytes, None]:
    async with contextlib.aclosing(statuses):
        async for status in statuses:
            yield line(status)


def _creation(fields: Fields) -> Creation:
    """The model in the body of ``/api/create``. Raises INVALID_ARG."""
    fields.refuse("modelfile", "its lines are fields of their own now: 'from', 'parameters', 'template', 'system' ...")
    for name in ("draft_files", "draft_quantize", "remote_host"):
        fields.refuse(name, "models here are made of GGUF files alone")
    fields.ignore("info")
    return Creation(
        name=ModelName.parse(required_model(fields)),
        base=fields.text("from"),
        files=_digests(fields, "files"),
        adapters=_digests(fields, "adapters"),
        template=fields.text_if_given("template"),
        system=fields.text_if_given("system"),
        licenses=fields.texts("license"),
        parameters=(fields.object("parameters") or Fields({})).values,
        messages=[message(each) for each in fields.objects("messages")],
        quantize=fields.text("quantize") or fields.text("quantization"),
        renderer=fields.text("renderer"),
        parser=fields.text("parser"),
        requires=fields.text("requires"),
    )


def _digests(fields: Fields, name: str) -> Mapping[str, str]:
    """Digests of blobs by the names of files."""
    given = fields.object(name) or Fields({})
    return {file: given.text(file) for file in given.values}
