"""The model control routes: Triton's *model repository* extension."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import Any

import orjson

from bident.doors.access import Api
from bident.doors.http.exchange import Exchange
from bident.doors.http.routes import Routes
from bident.doors.http.v2_json import loads
from bident.engine.engine import Engine
from bident.errors import Code, ServeError, invalid_arg
from bident.wire.shown import shown


class RepositoryRoutes:
    """Lists, loads and unloads the models of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def routes_into(self, routes: Routes) -> None:
        """Add the routes to ``routes``."""
        for repository in ("/v2/repository", "/v2/repository/{}"):
            routes.add("POST", f"{repository}/index", self.index, api=Api.MODEL_REPOSITORY)
            routes.add("POST", f"{repository}/models/{{}}/load", self.load, api=Api.MODEL_REPOSITORY)
            routes.add("POST", f"{repository}/models/{{}}/unload", self.unload, api=Api.MODEL_REPOSITORY)

    async def index(self, exchange: Exchange) -> None:
        """What the repositories hold and where each version stands."""
        document = loads(exchange.body) if exchange.body else {}
        ready = document.get("ready", False)
        if type(ready) is not bool:
            raise invalid_arg("Unable to parse 'ready': attempt to access JSON non-boolean as boolean")
        exchange.respond_json(orjson.dumps(await self._engine.index(ready=ready)))

    async def load(self, exchange: Exchange) -> None:
        """Load or reload a model; the answer comes when it serves, or with the reason why it does not."""
        name = _controlled_model(exchange)
        # Files of hundreds of megabytes may come along: no other client waits for their base64.
        config, files = await asyncio.get_running_loop().run_in_executor(None, _load_request, exchange.body)
        await self._engine.load(name, config, files)
        exchange.respond(200)

    async def unload(self, exchange: Exchange) -> None:
        """Take a model out of service; the answer comes when no new request reaches it."""
        name = _controlled_model(exchange)
        parameters = _control_body(exchange.body, "unload")
        dependents = parameters.get("unload_dependents", False)
        if type(dependents) is not bool:
            raise invalid_arg("unload parameter 'unload_dependents' must be true or false")
        await self._engine.unload(name, dependents=dependents)
        exchange.respond(200)


def _controlled_model(exchange: Exchange) -> str:
    if len(exchange.params) > 1:
        raise ServeError(
            Code.UNSUPPORTED, "'repository_name' specification is not supported: use /v2/repository/models/NAME/..."
        )
    return exchange.params[0]


def _control_body(body: bytes, verb: str) -> dict[str, Any]:
    """The ``parameters`` object of a load or unload body; empty where there is none."""
    if not body.strip():
        return {}
    document = loads(body)
    unknown = [key for key in document if key != "parameters"]
    if unknown:
        raise invalid_arg(
            f"unexpected key {shown(unknown[0])} in a {verb} request: everything goes under 'parameters', as in "
            '{"parameters": {"config": "{...}"}}'
        )
    parameters = document.get("parameters", {})
    if type(parameters) is not dict:
        raise invalid_arg("Unable to parse 'parameters': it must be a JSON object")
    return parameters


def _load_request(body: bytes) -> tuple[str | None, dict[str, bytes]]:
    """The config override and the files that the body of a load request carries."""
    config: str | None = None
    files: dict[str, bytes] = {}
    for key, value in _control_body(body, "load").items():
        if key != "config" and not key.startswith("file:"):
            raise invalid_arg(f"Unrecognized load parameter {shown(key)}: use 'config' or 'file:<version>/<name>'")
        if type(value) is not str:
            raise invalid_arg(
                f"attempt to access JSON non-string as string: load parameter {shown(key)} must be a string"
                + (" that holds the config as JSON" if key == "config" else " in base64")
            )
        if key == "config":
            config = value
        else:
            try:
                files[key.removeprefix("file:")] = base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError):
                raise invalid_arg(f"load parameter {shown(key)} is not valid base64") from None
    return config, files
