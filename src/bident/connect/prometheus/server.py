"""Prometheus's own API, as far as checks ask it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from bident.connect.elsewhere import Elsewhere
from bident.errors import Code, ServeError

DEFAULT_URL = "http://127.0.0.1:9090"


class PrometheusServer(Elsewhere):
    """A Prometheus. All methods raise UNAVAILABLE where it does not answer, or another server does."""

    protocol = "Prometheus's API"
    flag = "--set prometheus=URL"

    def targets(self) -> list[dict[str, Any]]:
        """What it scrapes, and how that went."""
        return self._found("/api/v1/targets?state=active", "activeTargets")

    def groups(self) -> list[dict[str, Any]]:
        """Its rules, by group."""
        return self._found("/api/v1/rules", "groups")

    def values(self, expression: str) -> list[dict[str, Any]]:
        """The series that ``expression`` has now."""
        return self._found(f"/api/v1/query?{urlencode({'query': expression})}", "result")

    def _found(self, path: str, name: str) -> list[dict[str, Any]]:
        answer = self.get_json(path)
        try:
            found: list[dict[str, Any]] = answer["data"][name]
        except (KeyError, TypeError):
            found = [{}]
        if not isinstance(found, list) or not all(isinstance(each, dict) and each for each in found):
            raise ServeError(Code.UNAVAILABLE, f"{self.url} is no Prometheus: it answers {path} otherwise")
        return found
