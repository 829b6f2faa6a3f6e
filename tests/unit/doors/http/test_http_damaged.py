"""Property: a damaged request gets an answer that says what is wrong with it, or one that is right after all."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from http_line import post
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

HEADERS = [
    "Inference-Header-Content-Length: {size}",
    "Inference-Header-Content-Length: 0",
    "Inference-Header-Content-Length: -1",
    "Inference-Header-Content-Length: 99999999999999999999",
    "Inference-Header-Content-Length: 1e3",
    "Inference-Header-Content-Length: \u00b2",
    "Content-Encoding: gzip",
    "Content-Encoding: deflate",
    "Content-Encoding: br",
    "Content-Encoding: \u00e9",
    "Accept-Encoding: gzip, *;q=0",
    "Accept-Encoding: deflate;q=0.1",
    "Content-Type: text/plain",
    "Triton-Request-Id: \u00ff",
]

_HEAD = {
    "id": "7",
    "inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 3], "parameters": {"binary_data_size": 12}}],
    "outputs": [{"name": "Y", "parameters": {"binary_data": True, "classification": 2}}],
    "parameters": {"priority": 1, "timeout": 5, "sequence_id": "a", "custom": 1.5},
}
_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**65), 2**65), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every member and element in ``value``."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += paths(inner, (*path, key))
    return found


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    document = json.loads(json.dumps(_HEAD))
    for _ in range(draw(st.integers(0, 2))):
        path = draw(st.sampled_from(paths(document)))
        place = document
        for key in path[:-1]:
            place = place[key]
        if draw(st.booleans()):
            place[path[-1]] = draw(_VALUES)
        else:
            del place[path[-1]]
        if not paths(document):
            break
    head = json.dumps(document).encode()
    tail = draw(st.one_of(st.just(bytes(12)), st.binary(max_size=30)))
    body = bytearray(head + tail)
    if draw(st.integers(0, 2)) == 0:
        at = draw(st.integers(0, len(body)))
        body[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    headers = [header.format(size=len(head)) for header in draw(st.lists(st.sampled_from(HEADERS), max_size=2))]
    model = draw(st.sampled_from(["fp32", "fp32", "fp32", "bytes", "nobody", "fp32/versions/1", "fp32/versions/2"]))
    return post(f"/v2/models/{model}/infer", bytes(body), f"Inference-Header-Content-Length: {len(head)}", *headers)


@given(requests())
@settings(
    deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
def test_a_damaged_request_gets_a_client_error(door: Any, caplog: pytest.LogCaptureFixture, damaged: bytes) -> None:
    caplog.clear()
    answer = door.ask(damaged)
    assert answer.status in (200, 400, 404, 501), answer.body
    if answer.status != 200:
        error = json.loads(answer.body)
        assert list(error) == ["error"]
        assert len(error["error"]) < 5000
        assert answer.headers[b"content-type"] == b"application/json"
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
