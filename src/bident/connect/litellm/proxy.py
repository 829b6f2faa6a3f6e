"""A running LiteLLM proxy, asked as its clients ask it."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import httpx

from bident.connect.litellm.choices import MASTER_KEY
from bident.errors import Code, ServeError

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 120.0
"""A model may have to be loaded first."""
_REFUSED = (401, 403)
_NOT_A_KEY = "no_db_connection"
"""How a proxy without a database, which could know other keys, refuses one."""
_SHOWN = 300


class Proxy:
    """LiteLLM at ``url``. ``key``: what to show it; empty for nothing."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url
        self._key = key
        timeout = httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS)
        # Not through the web proxies of the environment: LiteLLM is near.
        self._client = httpx.Client(timeout=timeout, trust_env=False)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def lives(self) -> None:
        """Raises UNAVAILABLE unless a proxy answers there."""
        reply = self._send("GET", "/health/liveliness", shows_key=False)
        if reply.status_code != httpx.codes.OK or "alive" not in reply.text:
            raise ServeError(Code.UNAVAILABLE, f"{self.url} answers {reply.status_code}, but not as LiteLLM does")

    def wants_key(self) -> bool:
        """Whether it refuses who shows no key."""
        return self._send("GET", "/v1/models", shows_key=False).status_code != httpx.codes.OK

    def models(self) -> list[str]:
        """The names of its models."""
        return [str(entry["id"]) for entry in self.ask("GET", "/v1/models")["data"]]

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON answer to ``body``. Raises UNAVAILABLE where none comes, INVALID_ARG for what is refused."""
        reply = self._send(method, path, body)
        if reply.is_error:
            raise self._refusal(reply)
        try:
            return reply.json()
        except ValueError:
            raise ServeError(Code.INTERNAL, f"{path} answered something that is not JSON") from None

    def _send(self, method: str, path: str, body: Any = None, *, shows_key: bool = True) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._key}"} if self._key and shows_key else {}
        try:
            return self._client.request(method, self.url + path, json=body, headers=headers)
        except httpx.TimeoutException:
            raise ServeError(Code.UNAVAILABLE, f"{self.url}{path} does not answer in time") from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise ServeError(Code.UNAVAILABLE, f"nothing answers at {self.url} ({error})") from None

    def _refusal(self, reply: httpx.Response) -> ServeError:
        """What an error says. Without a key, LiteLLM may answer 500 and no reason."""
        try:
            error = reply.json()["error"]
            said = error if isinstance(error, str) else str(error["message"])
            kind = "" if isinstance(error, str) else str(error.get("type"))
        except (ValueError, KeyError, TypeError):
            said, kind = reply.text, ""
        said = f"{reply.status_code} {said[:_SHOWN]}"
        if not self._key and (reply.status_code in (*_REFUSED, httpx.codes.INTERNAL_SERVER_ERROR)):
            return ServeError(Code.INVALID_ARG, f"it wants a key, and {MASTER_KEY} is not set here ({said})")
        if reply.status_code in _REFUSED or kind == _NOT_A_KEY:
            return ServeError(Code.INVALID_ARG, f"it does not take the key in {MASTER_KEY} ({said})")
        return ServeError(Code.INVALID_ARG, said)
