"""Who may ask for what: APIs that want a header, and API keys. One rule for both doors.

Triton's *limited endpoint access* (``--http-restricted-api``, ``--grpc-restricted-protocol``): an API of a
restricted group is answered only to requests that carry the group's header. API keys are Bident's.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, Protocol

from bident.settings.values import Api, RestrictedApi

__all__ = ["Access", "Api", "Keys", "Refusal"]

GRPC_PREFIX = "triton-grpc-protocol-"
"""What Triton puts in front of a group's header where it is gRPC metadata."""


class Refusal(NamedTuple):
    """Why a request is not answered: it lacks a group's header, or an API key. ``message`` is for the client."""

    kind: Literal["restricted", "unauthenticated"]
    message: str


class Keys(Protocol):
    """API keys, as :class:`Access` asks for them."""

    def allows(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether ``headers`` (lower-case names) carry a valid key."""
        ...


class _Rule(NamedTuple):
    header: bytes
    value: bytes
    refusal: Refusal


_NO_KEY = Refusal(
    "unauthenticated",
    "this server wants an API key: send the header 'authorization: Bearer KEY' or 'x-api-key: KEY' with a valid one",
)


class Access:
    """The rules of one door. A door without any has no Access, so that nobody pays for asking."""

    def __init__(self, restrictions: Iterable[RestrictedApi], keys: Keys | None = None, *, prefix: str = "") -> None:
        """``prefix`` stands before each group's header: "" over HTTP, :data:`GRPC_PREFIX` over gRPC."""
        self._keys = keys
        self._rules: dict[Api, _Rule] = {}
        for group in restrictions:
            rule = _rule(group, prefix)
            self._rules.update(dict.fromkeys(group.apis, rule))

    @classmethod
    def of(cls, restrictions: Iterable[RestrictedApi], keys: Keys | None = None, *, prefix: str = "") -> Access | None:
        """The Access that these rules ask for, or None where there are none."""
        groups = tuple(restrictions)
        return cls(groups, keys, prefix=prefix) if groups or keys is not None else None

    def refusal(self, api: Api | None, headers: Mapping[bytes, bytes]) -> Refusal | None:
        """Why a request of ``api`` with ``headers`` (lower-case names) is refused; None if it is not.

        What belongs to no API (None) cannot be restricted, but wants a key like the others. Health wants none: a
        probe has no key, and learns no more than that a server or model is ready.
        """
        keys = self._keys
        if keys is not None and api is not Api.HEALTH and not keys.allows(headers):
            return _NO_KEY
        rule = self._rules.get(api) if api is not None else None
        if rule is None or hmac.compare_digest(headers.get(rule.header, b""), rule.value):
            return None
        return rule.refusal


def _rule(group: RestrictedApi, prefix: str) -> _Rule:
    header = prefix + group.key
    what = "protocol" if prefix else "API"
    message = f"This {what} is restricted, expecting header '{header}'"
    return _Rule(header.lower().encode(), group.value.encode(), Refusal("restricted", message))
