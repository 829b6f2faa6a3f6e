"""What is probably wrong with a body that is not JSON."""

from __future__ import annotations

import re

_SINGLE_QUOTED = re.compile(rb"[\[{,:]\s*'")
_RAW_CONTROL = re.compile(rb'"[^"\\]*[\x00-\x1f]')


_TLS_RECORD = b"\x16\x03"
"""How every TLS connection begins: a handshake, in one of the versions 3.x."""


def malformed_hint(data: bytes | memoryview) -> str:
    """What is probably meant by bytes that are no HTTP request; empty if there is no telling."""
    if bytes(data[:2]) == _TLS_RECORD:
        return "; it is TLS, and this port speaks plain HTTP: use http://, or start the server with --http-use-ssl"
    return ""


def json_hint(body: bytes) -> str:
    """A hint to append to the parser's message, or an empty string."""
    head = body[: 64 * 1024]
    if not head.strip() and not body.strip():
        return "; the body is empty: POST a JSON object with 'inputs'"
    if _SINGLE_QUOTED.search(head):
        return "; it has single quotes: JSON strings take double quotes"
    if _RAW_CONTROL.search(head):
        return "; a string has a raw newline or tab in it: write \\n or \\t"
    if re.search(rb"\bNaN\b|\bInfinity\b", head):
        return "; JSON has no NaN or Infinity: send such values through the binary tensor extension"
    if re.search(rb"\b(?:True|False|None)\b", head):
        return "; it looks like Python: JSON has true, false and null"
    return ""
