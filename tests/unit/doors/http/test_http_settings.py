"""The routes of the trace and log settings, on a real engine."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.doors.http.conftest import EngineDoor
from tests.unit.doors.http.http_line import Answer

TRACE_OFF = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "",
    "trace_mode": "triton",
}


def ask(door: EngineDoor, path: str, body: bytes | dict[str, Any] | None = None) -> Answer:
    if body is None:
        return door.ask(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return door.ask(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n\r\n".encode() + raw)


@pytest.mark.parametrize("path", ["/v2/trace/setting", "/v2/models/fp32/trace/setting"])
def test_trace_settings_are_shown_and_changed(door: EngineDoor, path: str) -> None:
    assert json.loads(ask(door, path).body) == TRACE_OFF
    assert json.loads(ask(door, path, {"trace_rate": "7"}).body) == {**TRACE_OFF, "trace_rate": "7"}
    assert json.loads(ask(door, path, {"trace_rate": None}).body) == TRACE_OFF


def test_log_settings_are_shown_and_changed(door: EngineDoor) -> None:
    before = json.loads(ask(door, "/v2/logging").body)
    assert list(before) == ["log_file", "log_info", "log_warning", "log_error", "log_verbose_level", "log_format"]
    assert json.loads(ask(door, "/v2/logging", {"log_info": False}).body) == {**before, "log_info": False}
    assert json.loads(ask(door, "/v2/logging", {"log_info": True}).body) == before


@pytest.mark.parametrize(
    ("path", "body", "status", "fragment"),
    [
        ("/v2/trace/setting", {"trace_level": ["TIMESTAMPS"]}, 400, "trace file name is not given"),
        ("/v2/trace/setting", {"trace_file": "x"}, 501, "trace file location can not be updated"),
        ("/v2/models/nobody/trace/setting", {"trace_rate": "1"}, 400, "Request for unknown model : nobody"),
        ("/v2/models/nobody/trace/setting", None, 400, "Request for unknown model : nobody"),
        ("/v2/models/fp32/versions/1/trace/setting", None, 404, "Not Found"),
        ("/v2/logging", {"log_file": "x"}, 501, "log file location can not be updated"),
        ("/v2/logging", {"log_format": "x"}, 503, "invalid argument for --log_format, got: x"),
        ("/v2/logging", b"", 400, "failed to parse the request JSON buffer"),
        ("/v2/logging", b"[]", 400, "the body must be a JSON object of settings"),
        ("/v2/trace/setting", b"\xff", 400, "failed to parse the request JSON buffer"),
    ],
)
def test_what_cannot_be_set(
    door: EngineDoor, path: str, body: bytes | dict[str, Any] | None, status: int, fragment: str
) -> None:
    answer = ask(door, path, body)

    assert answer.status == status
    assert fragment in json.loads(answer.body)["error"]
