"""Header forwarding: headers whose name matches a pattern become parameters of the request.

Triton's ``--http-header-forward-pattern`` and ``--grpc-header-forward-pattern``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from bident.errors import invalid_arg
from bident.settings.patterns import compile_pattern
from bident.wire.infer import RESERVED_PREFIX, InferRequest
from bident.wire.shown import shown

_RESERVED = frozenset(
    {"sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output"}
)
_LONGEST_NAME = 64
"""Longer names are not forwarded: how long a match may take grows with a power of the length."""
_MOST_HEADERS = 100
_MOST_REMEMBERED = 4096


class Forwarding:
    """Forwards the headers whose name ``pattern`` matches anywhere, in either case."""

    def __init__(self, pattern: str) -> None:
        """Raises ValueError where ``pattern`` cannot be used: settings have been checked for that."""
        self._pattern: re.Pattern[str] = compile_pattern(pattern)
        self._known: dict[bytes, str | None] = {}
        """Names that have been looked at: as a parameter's key, or None where they are not forwarded."""

    @classmethod
    def of(cls, pattern: str) -> Forwarding | None:
        """The Forwarding that ``pattern`` asks for; None, without one, forwards nothing."""
        return cls(pattern) if pattern else None

    def apply(self, request: InferRequest, headers: Mapping[bytes, bytes]) -> None:
        """Add what is forwarded of ``headers`` to ``request.parameters``, as strings under the names they have.

        Raises INVALID_ARG for a header whose name is reserved, and where there are too many headers to look at.
        """
        if len(headers) > _MOST_HEADERS:
            raise invalid_arg(
                f"a request with more than {_MOST_HEADERS} headers cannot be searched for those to forward"
            )
        known = self._known
        forwarded: dict[str, str] = {}
        for name, value in headers.items():
            key = known[name] if name in known else self._look_at(name)
            if key is not None:
                if _is_reserved(key):
                    raise invalid_arg(f"Header {shown(key)} is reserved for Triton usage and cannot be forwarded.")
                forwarded[key] = _text(value)
        if forwarded:
            request.parameters = {**(request.parameters or {}), **forwarded}

    def _look_at(self, name: bytes) -> str | None:
        """The key under which the header ``name`` is forwarded, or None."""
        if len(name) > _LONGEST_NAME:
            return None
        text = name.decode("latin-1")
        key = text if self._pattern.search(text) else None
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        self._known[name] = key
        return key


def _is_reserved(key: str) -> bool:
    # Headers have no case, so neither has what they may not be called.
    name = key.lower()
    return name in _RESERVED or name.startswith(RESERVED_PREFIX)


def _text(value: bytes) -> str:
    """A header's value: UTF-8, or else Latin-1, as RFC 9110 says of old clients."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
