"""Raw bodies say in their headers alone how they want their answer."""

from __future__ import annotations

import json

import pytest

from bident.doors.http.v2 import V2


def raw(accept: str) -> bytes:
    head = f"POST /v2/models/line/infer HTTP/1.1\r\nHost: here\r\nInference-Header-Content-Length: 0\r\n{accept}"
    return f"{head}Content-Length: 2\r\n\r\n\xe9".encode()


def test_who_accepts_json_alone_gets_json(door):
    answer = door.ask(raw("Accept: application/json\r\n"))
    assert answer.headers[b"content-type"] == b"application/json"
    assert b"inference-header-content-length" not in answer.headers
    assert json.loads(answer.body)["outputs"] == [{"name": "Y", "datatype": "BYTES", "shape": [1], "data": ["é"]}]


@pytest.mark.parametrize("accept", ["", "Accept: */*\r\n", "Accept: application/json, text/plain, */*\r\n"])
def test_everybody_else_gets_bytes_as_from_triton(door, accept):
    answer = door.ask(raw(accept))
    assert answer.headers[b"content-type"] == b"application/octet-stream"
    assert answer.body.endswith(b"\2\0\0\0\xc3\xa9")


def test_triton_compat_gives_bytes(door):
    routes = V2(door.engine, name="test", version="0", max_input_bytes=1 << 20, compatible=True).routes()
    answer = door.ask(raw("Accept: application/json\r\n"), routes)
    assert answer.body.endswith(b"\2\0\0\0\xc3\xa9")


def test_json_cannot_hold_bytes_that_are_no_text(door):
    request = raw("Accept: application/json\r\n").replace(b"\xc3\xa9", b"\xff\xfe")
    answer = door.ask(request)
    assert answer.status == 400
    assert b"UTF-8" in answer.body
