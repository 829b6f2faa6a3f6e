"""What is probably wrong with a body that is not JSON, said in reasonable time."""

from __future__ import annotations

import time

import pytest

from bident.doors.http.hints import json_hint


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        (b"", "the body is empty"),
        (b" \r\n\t", "the body is empty"),
        (b" " * 70_000, "the body is empty"),
        (b" " * 70_000 + b"x", ""),
        (b"{'inputs': []}", "double quotes"),
        (b"{\"data\": ['a']}", "double quotes"),
        (b'{"data": "a\nb"}', "raw newline or tab"),
        (b'{"data": "a\tb"}', "raw newline or tab"),
        (b'{"data": "a\0', "raw newline or tab"),
        (b'{"data": [NaN]}', "binary tensor extension"),
        (b'{"data": [1, -Infinity]}', "binary tensor extension"),
        (b'{"data": [True]}', "looks like Python"),
        (b'{"data": None}', "looks like Python"),
        (b'{"data": [1,]}', ""),
        (b'{"data": "it\'s"}', ""),
    ],
)
def test_hints(body: bytes, hint: str) -> None:
    found = json_hint(body)
    assert hint in found
    assert bool(found) is bool(hint)


@pytest.mark.parametrize("unit", [b'"', b'"a', b",", b"[ ", b"{ \t", b'"\\', b"N", b"\n", b"\0", b'",'])
def test_no_body_takes_long(unit: bytes) -> None:
    body = unit * (64 * 1024 // len(unit))
    start = time.perf_counter()
    json_hint(body)
    assert time.perf_counter() - start < 0.2
