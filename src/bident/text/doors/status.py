"""Errors as each of the three protocols has them: a status and a shape, one table each.

Ollama: ``handleScheduleError`` and gin's ``{"error": "..."}``. OpenAI: its "Error codes" page, with the types that
Ollama's ``/v1`` gives. Anthropic: its "Errors" page.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import orjson
from starlette.responses import Response

from bident.errors import Code, ServeError, TooLargeError

logger = logging.getLogger("bident.text")

_STATUS: dict[Code, int] = {
    Code.INVALID_ARG: 400,
    Code.ALREADY_EXISTS: 400,
    Code.NOT_FOUND: 404,
    Code.CANCELLED: 499,
    Code.INTERNAL: 500,
    Code.UNKNOWN: 500,
    Code.UNSUPPORTED: 501,
    Code.UNAVAILABLE: 503,
}
_TOO_LARGE = 413
_OPENAI_TYPE = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "invalid_request_error",
}
_ANTHROPIC_TYPE = _OPENAI_TYPE | {413: "request_too_large", 503: "overloaded_error"}


class Protocol(NamedTuple):
    """How one protocol writes an error: ``shape(status, message)`` is its JSON."""

    name: str
    shape: Callable[[int, str], dict[str, Any]]

    def refusal(self, error: ServeError) -> Response:
        """The answer to a request that failed before anything was sent."""
        return self.answer(status_of(error), error.message)

    def answer(self, status: int, message: str) -> Response:
        return json_answer(self.shape(status, message), status)

    def late(self, error: ServeError) -> dict[str, Any]:
        """The object that ends an answer of which parts have been sent."""
        return self.shape(status_of(error), error.message)


def status_of(error: ServeError) -> int:
    """The HTTP status, the same in all three protocols."""
    return _TOO_LARGE if isinstance(error, TooLargeError) else _STATUS[error.code]


def json_answer(value: Any, status: int = 200) -> Response:
    """``value`` as JSON, with the content type that Ollama's server gives."""
    return Response(orjson.dumps(value), status, media_type="application/json; charset=utf-8")


def as_serve_error(error: Exception) -> ServeError:
    """The error itself if it is meant for the client; anything else is a fault of ours: logged, and INTERNAL."""
    if isinstance(error, ServeError):
        return error
    logger.error("a request failed in an unexpected way", exc_info=error)
    return ServeError(Code.INTERNAL, "internal error; the server's log has the details")


def _ollama(_: int, message: str) -> dict[str, Any]:
    return {"error": message}


def _openai(status: int, message: str) -> dict[str, Any]:
    kind = _OPENAI_TYPE.get(status, "api_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def _anthropic(status: int, message: str) -> dict[str, Any]:
    kind = _ANTHROPIC_TYPE.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": f"req_{uuid.uuid4().hex}"}


OLLAMA = Protocol("ollama", _ollama)
OPENAI = Protocol("openai", _openai)
ANTHROPIC = Protocol("anthropic", _anthropic)
