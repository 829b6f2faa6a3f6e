"""From a request's target to what serves it. Knows patterns and verbs, not what they mean."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

from bident.doors.access import Api, Refusal
from bident.doors.http.exchange import Exchange

Serve = Callable[[Exchange], Awaitable[None] | None]

_CACHE_SIZE = 4096
_MAX_CACHED_TARGET = 512
"""Longer targets are looked up each time: what strangers ask for must not fill the memory."""


@dataclass(frozen=True)
class Resource:
    """What one pattern and verb lead to.

    ``serve`` answers the exchange, at once or later; if it is a coroutine function it is run as a
    task. ``binary`` marks bodies that may carry tensors, which have another size limit than JSON.
    ``defaults`` are parameters that the pattern does not have and others of the same ``serve`` do.
    ``api`` is the group in which it can be restricted.
    """

    serve: Serve
    binary: bool = False
    defaults: tuple[str, ...] = ()
    api: Api | None = None


@dataclass
class _Node:
    children: dict[str, _Node] = field(default_factory=dict)
    parameter: _Node | None = None
    number: _Node | None = None
    resources: dict[bytes, Resource] = field(default_factory=dict)


Found = tuple[Resource, tuple[str, ...]]


@dataclass(frozen=True)
class Unrouted:
    """Why a request is not served. ``allow``: the verbs its target would be served with."""

    status: int
    message: str
    allow: tuple[bytes, ...] = ()

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """What the answer has to say beside its message."""
        if self.status == 401:
            return [(b"WWW-Authenticate", b"Bearer")]
        return [(b"Allow", b", ".join(self.allow))] if self.allow else []

    @classmethod
    def refused(cls, refusal: Refusal) -> Unrouted:
        """The answer to a request that may not ask for what it asks for."""
        return cls(401 if refusal.kind == "unauthenticated" else 403, refusal.message)


_NOT_FOUND = Unrouted(404, "Not Found")
_BAD_PATH = Unrouted(400, "the request's path is not valid UTF-8 after percent-decoding")


class Routes:
    """A tree of patterns such as ``/v2/models/{}/versions/{#}/infer``: ``{}`` any segment, ``{#}`` digits.

    A literal segment wins over a parameter. Segments are percent-decoded exactly once, after the
    split, so an encoded slash stays part of a name. HEAD is served wherever GET is.
    """

    def __init__(self, fallback: Serve | None = None) -> None:
        """``fallback`` serves a GET of any other path."""
        self._root = _Node()
        self._fallback = Resource(fallback) if fallback is not None else None
        self._cache: dict[tuple[bytes, bytes], Found] = {}
        self._depth = 0

    def add(
        self,
        verb: str,
        pattern: str,
        serve: Serve,
        *,
        binary: bool = False,
        defaults: tuple[str, ...] = (),
        api: Api | None = None,
    ) -> None:
        """Serve ``verb`` on ``pattern`` with ``serve``; the rest is as :class:`Resource` has it."""
        node = self._root
        segments = pattern.strip("/").split("/")
        self._depth = max(self._depth, len(segments))
        for segment in segments:
            if segment == "{}":
                node.parameter = node.parameter or _Node()
                node = node.parameter
            elif segment == "{#}":
                node.number = node.number or _Node()
                node = node.number
            else:
                node = node.children.setdefault(segment, _Node())
        resource = Resource(serve, binary, defaults, api)
        node.resources[verb.encode()] = resource
        if verb == "GET":
            node.resources[b"HEAD"] = resource

    def find(self, target: bytes, method: bytes) -> Found | Unrouted:
        """The resource for ``target`` and its parameters, or why there is none."""
        key = (target, method)
        found = self._cache.get(key)
        if found is not None:
            return found
        try:
            segments = _segments(target, self._depth)
        except UnicodeDecodeError:
            return _BAD_PATH
        matches = list(_matches(self._root, segments, 0))
        for node, found_params in matches:
            params = found_params
            resource = node.resources.get(method)
            if resource is not None:
                params += resource.defaults
                if len(target) <= _MAX_CACHED_TARGET:
                    if len(self._cache) >= _CACHE_SIZE:
                        self._cache.clear()
                    self._cache[key] = (resource, params)
                return resource, params
        allow = tuple(sorted({verb for node, _ in matches for verb in node.resources}))
        if allow:
            return Unrouted(405, "Method Not Allowed", allow)
        if self._fallback is not None and method in (b"GET", b"HEAD"):
            return self._fallback, ()
        return _NOT_FOUND


def _segments(target: bytes, most: int) -> list[str]:
    """The decoded segments of the target's path; one more than ``most``, undivided, if it has more."""
    path = target.split(b"?", 1)[0].split(b"#", 1)[0]
    if not path.startswith(b"/"):  # absolute form, as proxies send it: scheme://host/path
        path = b"/" + path.partition(b"://")[2].partition(b"/")[2]
    return [unquote_to_bytes(segment).decode("utf-8") for segment in path[1:].split(b"/", most)]


def _matches(node: _Node, segments: list[str], at: int) -> list[tuple[_Node, tuple[str, ...]]]:
    """All nodes that ``segments`` lead to from ``node``, literal ones first."""
    if at == len(segments):
        return [(node, ())]
    segment = segments[at]
    found: list[tuple[_Node, tuple[str, ...]]] = []
    if segment in node.children:
        found += _matches(node.children[segment], segments, at + 1)
    if node.number is not None and segment.isascii() and segment.isdigit():
        found += [(end, (segment, *rest)) for end, rest in _matches(node.number, segments, at + 1)]
    if node.parameter is not None and segment:
        found += [(end, (segment, *rest)) for end, rest in _matches(node.parameter, segments, at + 1)]
    return found
