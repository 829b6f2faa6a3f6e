"""The lists of models of a real Ollama, with those models in them that others answer for beside it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import httpx
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from bident.text.doors.status import json_answer
from bident.text.upstream import model_key

_LISTS = {"/api/tags": ("models", "name"), "/v1/models": ("data", "id")}
"""Where models are listed: the name of the list, and what has a model's name in it."""


class Together:
    """Before ``ollama``: what of ``beside``'s models goes by one of ``keys`` is listed with its own."""

    def __init__(self, ollama: ASGIApp, beside: ASGIApp, keys: Collection[str]) -> None:
        self._ollama = ollama
        self._beside = beside
        self._keys = frozenset(keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET" or scope["path"] not in _LISTS:
            await self._ollama(scope, receive, send)
            return
        await (await self._listed(scope))(scope, receive, send)

    async def _listed(self, scope: Scope) -> Response:
        where, name = _LISTS[scope["path"]]
        theirs, ours = await _asked(self._ollama, scope), await _asked(self._beside, scope)
        try:
            found: dict[str, Any] = theirs.json()
            models = [model for model in found[where] or () if model_key(model[name]) not in self._keys]
        except (ValueError, TypeError, KeyError):  # it does not answer, or as no Ollama does: that is the answer
            return Response(theirs.content, theirs.status_code, media_type=theirs.headers.get("content-type"))
        more = [model for model in ours.json()[where] if model_key(model[name]) in self._keys]
        return json_answer({**found, where: [*models, *more]})


async def _asked(app: ASGIApp, scope: Scope) -> httpx.Response:
    headers = [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        return await client.get(scope["path"], headers=headers)
