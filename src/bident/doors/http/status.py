"""The one table that turns Bident's error codes into HTTP statuses (Triton's ``http_server.cc``)."""

from __future__ import annotations

from http import HTTPStatus

from bident.errors import Code

STATUS: dict[Code, int] = {
    Code.INVALID_ARG: 400,
    Code.ALREADY_EXISTS: 400,
    Code.CANCELLED: 400,
    Code.UNKNOWN: 400,
    Code.NOT_FOUND: 404,
    Code.INTERNAL: 500,
    Code.UNSUPPORTED: 501,
    Code.UNAVAILABLE: 503,
}

LINE: dict[int, bytes] = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode("ascii") for status in HTTPStatus
}
"""Status -> first line of the answer."""
