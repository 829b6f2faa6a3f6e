"""Other servers that answer in the engine's place: which models they have, and how OpenAI-compatible ones are asked.

They take the same paths and bodies as a model's own process, so that the engine translates for both.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import httpx
import orjson

from bident.errors import Code, ServeError
from bident.settings.addresses import Upstream
from bident.text.answering.asked import RemoteModel, Server
from bident.text.names import ModelName
from bident.wire.shown import shown

logger = logging.getLogger("bident.text")

_CONNECT_SECONDS = 10.0
_LIST_SECONDS = 3.0
"""A list of models is complete without those of a server that takes longer to name them."""
_SILENCE_SECONDS = 600.0
"""As long as a server may think before the next bytes of its answer."""
_LARGEST_ANSWER = 256 << 20
_LONGEST_LINE = 16 << 20
_JSON = {"content-type": "application/json"}
_DATA = b"data:"
_CODES = {400: Code.INVALID_ARG, 404: Code.NOT_FOUND, 413: Code.INVALID_ARG, 422: Code.INVALID_ARG}
_BUSY = (429, 503, 529)


class OpenaiUpstream:
    """An OpenAI-compatible server at ``url``, which ends where its paths begin with ``/chat`` (mostly in ``/v1``)."""

    def __init__(self, url: str, api_key: str = "", transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.url = url
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        timeout = httpx.Timeout(_SILENCE_SECONDS, connect=_CONNECT_SECONDS)
        self._client = httpx.AsyncClient(headers=headers, timeout=timeout, transport=transport)

    async def stream(self, path: str, payload: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The objects of its events. Raises ServeError for an error in place of them or among them."""
        body = orjson.dumps({**payload, "stream": True})
        try:
            async with self._client.stream("POST", self._where(path), content=body, headers=_JSON) as response:
                if response.status_code != httpx.codes.OK:
                    raise self._refused(response.status_code, await self._whole(response))
                async for line in _lines(response):
                    if not line.startswith(_DATA):
                        continue
                    data = line[len(_DATA) :].strip()
                    if data == b"[DONE]":
                        return
                    yield self._event(data)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None

    async def ask(self, path: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Its one answer. Raises ServeError."""
        body = orjson.dumps(payload)
        try:
            async with self._client.stream("POST", self._where(path), content=body, headers=_JSON) as response:
                whole = await self._whole(response)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None
        if response.status_code != httpx.codes.OK:
            raise self._refused(response.status_code, whole)
        return self._object(whole)

    async def models(self) -> list[str]:
        """What its models are called. Raises ServeError."""
        try:
            response = await self._client.get(self._where("/v1/models"), timeout=_LIST_SECONDS)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None
        if response.status_code != httpx.codes.OK:
            raise self._refused(response.status_code, response.content)
        listed = self._object(response.content).get("data")
        if not isinstance(listed, list):
            raise self._strange("its list of models is none")
        return [each["id"] for each in listed if isinstance(each, dict) and isinstance(each.get("id"), str)]

    async def close(self) -> None:
        """Let its connections go."""
        await self._client.aclose()

    def _where(self, path: str) -> str:
        """``path`` begins with /v1, and so may the server's own address end."""
        return self.url + (path.removeprefix("/v1") if path.startswith("/v1/") else path)

    async def _whole(self, response: httpx.Response) -> bytes:
        body = bytearray()
        async for part in response.aiter_bytes():
            body += part
            if len(body) > _LARGEST_ANSWER:
                raise self._strange(f"its answer is larger than {_LARGEST_ANSWER} bytes")
        return bytes(body)

    def _event(self, data: bytes) -> dict[str, Any]:
        event = self._object(data)
        if event.get("error"):
            raise ServeError(Code.INTERNAL, f"{self.url}: {_message(event)}")
        return event

    def _object(self, data: bytes) -> dict[str, Any]:
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError:
            value = None
        if not isinstance(value, dict):
            raise self._strange(f"it answers {shown(data[:200].decode('utf-8', 'replace'))}")
        return value

    def _refused(self, status: int, body: bytes) -> ServeError:
        try:
            reason = _message(orjson.loads(body))
        except orjson.JSONDecodeError:
            reason = body[:500].decode("utf-8", "replace").strip()
        code = Code.UNAVAILABLE if status in _BUSY else _CODES.get(status, Code.INTERNAL)
        return ServeError(code, f"{self.url} answers {status}: {reason}")

    def _unreachable(self, error: httpx.HTTPError) -> ServeError:
        return ServeError(Code.UNAVAILABLE, f"the upstream {self.url} does not answer: {error or type(error).__name__}")

    def _strange(self, what: str) -> ServeError:
        return ServeError(Code.INTERNAL, f"the upstream {self.url} is no OpenAI-compatible server: {what}")


class UpstreamModels:
    """The models that other servers answer for: those that are named, and all others where one is the default."""

    def __init__(self, upstreams: Sequence[Upstream], api_key: str = "") -> None:
        openai = [each for each in upstreams if each.kind == "openai"]
        self._by_url = {each.url: OpenaiUpstream(each.url, api_key) for each in openai}
        self._by_model = {model_key(each.model): each for each in upstreams if each.model}
        self._default = next((each for each in openai if not each.model), None)

    def find(self, model: str) -> Server | None:
        """The OpenAI-compatible server that answers for ``model``; None where it is not for the engine to ask one."""
        upstream = self._of(model)
        if upstream is None or upstream.kind != "openai":
            return None
        return Server(self._by_url[upstream.url], is_native=False, model=upstream.model or model)

    def remote(self, model: str) -> RemoteModel | None:
        """Where ``model`` is, if another server answers for it; whether that has it is not asked."""
        upstream = self._of(model)
        if upstream is None or upstream.kind == "none":
            return None
        return RemoteModel(upstream.model or model, upstream.url)

    async def listed(self) -> list[RemoteModel]:
        """The models that are named, and those that the default server says it has, if it answers soon."""
        named = [RemoteModel(each.model, each.url) for each in self._by_model.values() if each.kind != "none"]
        if self._default is None:
            return named
        try:
            found = await asyncio.wait_for(self._by_url[self._default.url].models(), _LIST_SECONDS)
        except (ServeError, asyncio.TimeoutError) as error:
            logger.warning("the models of %s are not listed: %s", self._default.url, str(error) or "it takes too long")
            return named
        return named + [RemoteModel(each, self._default.url) for each in found if model_key(each) not in self._by_model]

    def _of(self, model: str) -> Upstream | None:
        return self._by_model.get(model_key(model), self._default)

    async def close(self) -> None:
        """Let all connections go."""
        for upstream in self._by_url.values():
            await upstream.close()


def model_key(model: str) -> str:
    """What models are compared by: with and without ``:latest`` are one. Other servers' names may be no name here."""
    try:
        return ModelName.parse(model).key
    except ServeError:
        return model


def _message(answer: Any) -> str:
    """What an error says, in the shapes that servers give it."""
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    message = error.get("message", error) if isinstance(error, dict) else error
    return message[:2000] if isinstance(message, str) else shown(message)


async def _lines(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    """Lines as they come, however the bytes are cut. Raises ServeError for one without end."""
    rest = b""
    async for part in response.aiter_bytes():
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > _LONGEST_LINE:
            raise ServeError(Code.INTERNAL, f"the upstream sends a line of more than {_LONGEST_LINE} bytes")
    if rest:
        yield rest
