"""What the headers of a request say: read once for each different header block, then shared between calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from bident.doors.access import Api
from bident.doors.grpc import answer_heads
from bident.doors.grpc.call import Open, Serve, Service, Status
from bident.doors.grpc.packing import CODINGS, Coding, choose

_PSEUDO = frozenset((b":method", b":scheme", b":path", b":authority"))
_NEEDED = (b":method", b":scheme", b":path")
_OF_CONNECTIONS = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))
_NAME_CHARACTERS = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")
_NEVER_IN_VALUES = frozenset(b"\x00\r\n")
_UNIT_NS = {
    b"H": 3_600_000_000_000,
    b"M": 60_000_000_000,
    b"S": 1_000_000_000,
    b"m": 1_000_000,
    b"u": 1_000,
    b"n": 1,
}
_MOST_TIMEOUT_DIGITS = 8
_QUOTED = 200
"""How much of what a client sent is quoted in an error."""

Fields = Iterable[tuple[bytes, bytes]]


class Refusal(NamedTuple):
    """The answer to a request that goes no further: a header block, and text for whoever does not speak gRPC."""

    block: bytes
    body: bytes = b""


class RequestHead:
    """A request's headers, understood. Exactly one of ``serve``, ``open`` and ``refusal`` is set."""

    __slots__ = ("api", "length", "metadata", "method", "open", "pack", "refusal", "serve", "timeout_ns", "unpack")

    def __init__(self, method: bytes, metadata: dict[bytes, bytes]) -> None:
        self.method = method
        self.metadata = metadata
        self.serve: Serve | None = None
        self.open: Open | None = None
        self.api: Api | None = None
        self.refusal: Refusal | None = None
        self.timeout_ns = -1
        """How long the client waits from now; -1 is for ever."""
        self.length = -1
        """The declared size of all its DATA together; -1 if it declares none."""
        self.unpack: Coding | None = None
        """How its compressed messages are."""
        self.pack: Coding | None = None
        """How answers may be compressed."""


def malformed(fields: Fields, *, is_first: bool) -> str:
    """Why ``fields`` are no header list (RFC 9113, section 8.2 and 8.3), or "". Not the first: trailers."""
    pseudo: set[bytes] = set()
    is_regular = not is_first
    for name, value in fields:
        if name.startswith(b":"):
            if is_regular or name not in _PSEUDO or name in pseudo:
                return f"the pseudo-header {_quote(name)} is unknown, repeated, or not in front"
            pseudo.add(name)
        else:
            is_regular = True
            if not name or not _NAME_CHARACTERS.issuperset(name):
                return f"{_quote(name)} is no header name in lower case"
            if name in _OF_CONNECTIONS or (name == b"te" and value != b"trailers"):
                return f"the header {_quote(name)} has no place in HTTP/2"
        if not _NEVER_IN_VALUES.isdisjoint(value):
            return f"the value of {_quote(name)} has a line end or a zero byte in it"
    if is_first and not pseudo.issuperset(_NEEDED):
        return "a request needs :method, :scheme and :path"
    return ""


def read_head(fields: Fields, service: Service) -> RequestHead:
    """What well-formed ``fields`` ask for."""
    metadata: dict[bytes, bytes] = {}
    pseudo: dict[bytes, bytes] = {}
    for name, value in fields:
        if name.startswith(b":"):
            pseudo[name] = value
        else:
            metadata[name] = metadata[name] + b", " + value if name in metadata else value
    head = RequestHead(pseudo[b":path"], metadata)
    head.refusal = _refuse_request(pseudo[b":method"], metadata) or _read_coding(head) or _read_numbers(head)
    if head.refusal is None:
        found = service.find(head.method)
        if found is not None:
            head.serve, head.open, head.api = found
        else:
            head.refusal = _refuse(
                Status.UNIMPLEMENTED,
                f"Method not found: this server has no method {_quote(head.method)}; "
                f"server reflection lists those it has",
            )
    return head


def _refuse(status: Status, message: str) -> Refusal:
    return Refusal(answer_heads.trailers_only(status, message))


def _no_grpc(http_status: int, message: str) -> Refusal:
    block = answer_heads.no_grpc(http_status, Status.UNKNOWN, message)
    return Refusal(block, message.encode() + b"\n")


def _refuse_request(method: bytes, metadata: dict[bytes, bytes]) -> Refusal | None:
    """The refusal of a request that is not gRPC."""
    content_type = metadata.get(b"content-type", b"").lower()
    kind = content_type.removeprefix(b"application/grpc")
    if kind == content_type or (kind and kind[:1] not in b"+;"):
        said = f"not {_quote(content_type)}" if content_type else "and there is none"
        return _no_grpc(415, f"this port speaks gRPC: the content-type has to be application/grpc, {said}")
    if kind.startswith(b"+") and kind.partition(b";")[0] != b"+proto":
        return _no_grpc(415, f"messages have to be protocol buffers (application/grpc), not {_quote(content_type)}")
    if method != b"POST":
        return _no_grpc(405, f"gRPC's calls are POST requests, not {_quote(method)}")
    return None


def _read_coding(head: RequestHead) -> Refusal | None:
    encoding = head.metadata.get(b"grpc-encoding", b"identity")
    if encoding != b"identity":
        head.unpack = CODINGS.get(encoding)
        if head.unpack is None:
            message = f"Compression algorithm {_quote(encoding)} is not supported: use gzip, deflate or identity"
            block = answer_heads.trailers_only(Status.UNIMPLEMENTED, message) + answer_heads.ACCEPTED
            return Refusal(block)
    head.pack = choose(head.metadata.get(b"grpc-accept-encoding", b""))
    return None


def _read_numbers(head: RequestHead) -> Refusal | None:
    timeout = head.metadata.get(b"grpc-timeout")
    if timeout is not None:
        unit = _UNIT_NS.get(timeout[-1:])
        digits = timeout[:-1]
        if unit is None or not digits.isdigit() or len(digits) > _MOST_TIMEOUT_DIGITS:
            return _refuse(
                Status.INTERNAL, f"malformed grpc-timeout {_quote(timeout)}: up to 8 digits and one of H M S m u n"
            )
        head.timeout_ns = int(digits) * unit
    length = head.metadata.get(b"content-length")
    if length is not None:
        if not length.isdigit() or len(length) > 2 * _MOST_TIMEOUT_DIGITS:
            return _refuse(Status.INTERNAL, f"malformed content-length {_quote(length)}")
        head.length = int(length)
    return None


def _quote(text: bytes) -> str:
    shown = text[:_QUOTED].decode("latin-1")
    return f"'{shown}...'" if len(text) > _QUOTED else f"'{shown}'"
