"""The HTTP session that spans are sent over: it takes no answer for what it is not.

OpenTelemetry's exporter reads an answer whole, however long it is, and counts a redirection as success without going
where it leads: the spans would be lost, and nobody told.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import requests

_MOST_ANSWER_BYTES = 64 << 10
"""OTLP's own answers have a few bytes; they say at most how many spans were refused, and why."""


class SpanSession(requests.Session):
    """Raises RequestException where the other side redirects, or answers without an end."""

    def __init__(self) -> None:
        super().__init__()
        self.stream = True  # the answer is read here, and no more of it than this
        self.hooks["response"].append(_take)


def _take(response: requests.Response, **_: Any) -> None:
    with response:
        length = len(response.raw.read(_MOST_ANSWER_BYTES + 1))
    if HTTPStatus.MULTIPLE_CHOICES <= response.status_code < HTTPStatus.BAD_REQUEST:
        told = response.headers.get("location", "")[:200]
        raise requests.RequestException(
            f"it answers {response.status_code}, which leads to '{told}': name the address that takes spans itself"
        )
    if length > _MOST_ANSWER_BYTES:
        raise requests.RequestException(
            f"its answer is longer than {_MOST_ANSWER_BYTES} bytes: it is none that takes spans"
        )
