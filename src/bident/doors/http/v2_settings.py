"""The routes of the settings that clients may change while the server runs: *trace* and *logging*."""

from __future__ import annotations

from typing import Any

import orjson

from bident.doors.access import Api
from bident.doors.http.exchange import Exchange
from bident.doors.http.routes import Routes
from bident.engine.engine import Engine
from bident.errors import MalformedError


class SettingsRoutes:
    """Serves the settings of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def routes_into(self, routes: Routes) -> None:
        """Add the routes to ``routes``."""
        for path, model in (("/v2/trace/setting", ("",)), ("/v2/models/{}/trace/setting", ())):
            routes.add("GET", path, self.trace_settings, defaults=model, api=Api.TRACE)
            routes.add("POST", path, self.update_trace_settings, defaults=model, api=Api.TRACE)
        routes.add("GET", "/v2/logging", self.log_settings, api=Api.LOGGING)
        routes.add("POST", "/v2/logging", self.update_log_settings, api=Api.LOGGING)

    def trace_settings(self, exchange: Exchange) -> None:
        """What is traced, of one model or of all."""
        exchange.respond_json(orjson.dumps(self._engine.tracing.settings(*exchange.params)))

    async def update_trace_settings(self, exchange: Exchange) -> None:
        """Change what is traced; the answer is what is traced then."""
        (model,) = exchange.params
        said = await self._engine.apply("tracing", "update", model, _changes(exchange.body))
        exchange.respond_json(orjson.dumps(said))

    def log_settings(self, exchange: Exchange) -> None:
        """What the log shows, and how."""
        exchange.respond_json(orjson.dumps(self._engine.log_settings.as_dict()))

    async def update_log_settings(self, exchange: Exchange) -> None:
        """Change what the log shows; the answer is what it shows then."""
        exchange.respond_json(orjson.dumps(await self._engine.apply("log_settings", "update", _changes(exchange.body))))


def _changes(body: bytes) -> dict[str, Any]:
    """The settings that ``body`` names. Raises MalformedError."""
    try:
        document = orjson.loads(body)
    except ValueError as error:
        raise MalformedError(f"failed to parse the request JSON buffer: {error}") from None
    if type(document) is not dict:
        raise MalformedError("failed to parse the request JSON buffer: the body must be a JSON object of settings")
    return document
