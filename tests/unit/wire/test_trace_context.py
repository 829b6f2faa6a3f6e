"""The W3C's trace context: read from headers, and passed on."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bident.wire.trace_context import TraceContext, propagated

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_the_context_of_a_larger_trace_goes_on() -> None:
    found = propagated({b"traceparent": PARENT, b"tracestate": b"a=b"})
    assert found is not None
    assert found.as_headers() == {"traceparent": PARENT.decode(), "tracestate": "a=b"}
    assert json.loads(found.as_json()) == found.as_headers()
    alone = propagated({b"traceparent": PARENT})
    assert alone is not None
    assert alone.as_headers() == {"traceparent": PARENT.decode()}


@pytest.mark.parametrize(
    "parent",
    [b"", b"x", PARENT.upper(), PARENT + b"-", b"ff" + PARENT[2:], b"00-" + b"0" * 32 + PARENT[35:], PARENT + b"\n"],
)
def test_a_context_that_is_none_is_left_alone(parent: bytes) -> None:
    assert propagated({b"traceparent": parent}) is None
    assert propagated({}) is None


def test_a_span_below_another_belongs_to_the_same_trace() -> None:
    client = propagated({b"traceparent": PARENT[:-2] + b"00", b"tracestate": b"a=b"})
    assert client is not None
    below = client.below()

    assert (below.trace_id, below.parent_id, below.state) == (client.trace_id, client.span_id, "a=b")
    assert below.span_id not in (0, client.span_id)
    assert below.as_headers()["traceparent"].endswith("-01")


def test_a_first_span_has_nothing_above_it() -> None:
    first, other = TraceContext.first(), TraceContext.first()

    assert first.parent_id == 0
    assert first.trace_id != other.trace_id
    assert propagated({b"traceparent": first.as_headers()["traceparent"].encode()}) == first


@given(st.binary(), st.binary())
def test_any_bytes_are_read_or_left_alone(parent: bytes, state: bytes) -> None:
    with suppress(AttributeError):
        propagated({b"traceparent": parent, b"tracestate": state}).as_json()  # type: ignore[union-attr]
