"""Where a request stands in a larger trace: the W3C's *Trace Context*, as clients send it and models get it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from random import getrandbits
from typing import NamedTuple

_TRACEPARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-((?!0{32})[0-9a-f]{32})-((?!0{16})[0-9a-f]{16})-([0-9a-f]{2})")
_LONGEST_STATE = 512
_SAMPLED = 1


class TraceContext(NamedTuple):
    """One span of a trace: their numbers, and that of the span above (0: none, or not known)."""

    trace_id: int
    span_id: int
    parent_id: int = 0
    flags: int = _SAMPLED
    state: str = ""
    """What other tracing systems have said, to be passed on as it is."""

    @classmethod
    def first(cls) -> TraceContext:
        """The first span of a new trace."""
        return cls(_number(128), _number(64))

    def below(self) -> TraceContext:
        """A span that is part of this one, and is recorded."""
        return TraceContext(self.trace_id, _number(64), self.span_id, self.flags | _SAMPLED, self.state)

    def as_headers(self) -> dict[str, str]:
        """What tells another server that its part comes below this span."""
        headers = {"traceparent": f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.flags:02x}"}
        if self.state:
            headers["tracestate"] = self.state
        return headers

    def as_json(self) -> str:
        """The headers as a JSON object: the form in which models get them."""
        return json.dumps(self.as_headers(), separators=(",", ":"))


def propagated(headers: Mapping[bytes, bytes]) -> TraceContext | None:
    """The span of the client, if ``headers`` (names in lower case) name one."""
    parent = headers.get(b"traceparent")
    if parent is None:
        return None
    found = _TRACEPARENT.fullmatch(parent)
    if found is None:
        return None
    state = headers.get(b"tracestate", b"")
    kept = state.decode("latin-1") if len(state) <= _LONGEST_STATE else ""
    return TraceContext(int(found[1], 16), int(found[2], 16), 0, int(found[3], 16), kept)


def _number(bits: int) -> int:
    """A number that no other trace or span has; 0 would mean that there is none."""
    return getrandbits(bits) or 1
