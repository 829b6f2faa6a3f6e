"""KServe v2 JSON: a request's body to its document.

Small bodies are read by orjson, and their tensors stay lists until the scheduler joins a batch.
Large ones are read by simdjson. Both readers obey the same rules: a value of the wrong type is
refused, never converted; duplicate keys mean the last one; nested and flat data are the same in
row-major order.
"""

from __future__ import annotations

from typing import Any

import orjson

from bident.doors.http.hints import json_hint
from bident.doors.http.v2_large import loads_large
from bident.errors import MalformedError

LARGE_BODY = 16 * 1024
"""From this many bytes on a body is read by simdjson."""


def trimmed(body: bytes) -> bytes:
    """``body`` without what Triton overlooks: a byte order mark before its JSON, NULs behind it."""
    return body.removeprefix(b"\xef\xbb\xbf").rstrip(b"\0")


def loads(body: bytes | memoryview) -> dict[str, Any]:
    """The request object in ``body``. Raises INVALID_ARG with the place and a hint when it is not JSON."""
    try:
        document = orjson.loads(body) if len(body) < LARGE_BODY else loads_large(bytes(body))
    except (ValueError, RuntimeError) as error:  # RuntimeError: simdjson's, of depth and of 65-bit integers
        bare = trimmed(bytes(body))
        if len(bare) < len(body):
            return loads(bare)
        raise MalformedError(f"failed to parse the request JSON buffer: {error}{json_hint(bytes(body))}") from None
    if type(document) is not dict:
        raise MalformedError(
            "failed to parse the request JSON buffer: the body must be a JSON object such as "
            '{"inputs": [{"name": ..., "shape": [...], "datatype": ..., "data": [...]}]}'
        )
    return document
