"""Hosts, origins and keys: who may ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse

from bident.text.doors.guard import Guard
from tests.unit.text.doors.scripted_engine import Client


class OneKey:
    def allows(self, headers: Mapping[bytes, bytes]) -> bool:
        return headers.get(b"authorization") == b"Bearer right"


def guarded(
    host: str = "localhost:11434",
    *,
    method: str = "GET",
    path: str = "/api/tags",
    headers: dict[str, str] | None = None,
    **more: Any,
) -> httpx.Response:
    options: dict[str, Any] = {"origins": (), "loopback": True, "keys": None, **more}
    client = Client(Guard(PlainTextResponse("in"), **options))
    return client.request(method, path, headers={"host": host, **(headers or {})})


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:1",
        "127.0.0.1:11434",
        "[::1]:11434",
        "192.168.1.7:11434",
        "10.0.0.1",
        "0.0.0.0:80",
        "my.localhost",
        "box.local:1",
        "host.docker.internal:11434",
    ],
)
def test_names_of_this_machine_pass(host: str) -> None:
    assert guarded(host).text == "in"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:11434", "8.8.8.8", "localhost.evil.example", "[2001:4860::1]"]
)
def test_other_names_do_not(host: str) -> None:
    answer = guarded(host)
    assert answer.status_code == 403
    assert "Host header" in answer.json()["error"]
    assert guarded(host, loopback=False).text == "in"


@pytest.mark.parametrize(
    "origin",
    [
        "http://localhost",
        "https://localhost:3000",
        "http://127.0.0.1:8080",
        "http://0.0.0.0",
        "http://[::1]:5173",
        "app://obsidian.md",
        "file://",
        "tauri://localhost",
        "vscode-webview://abc",
        "http://good.example",
        "https://a.pages.example",
    ],
)
def test_origins_that_may(origin: str) -> None:
    origins = ("http://good.example", "https://*.pages.example")
    answer = guarded(headers={"origin": origin}, origins=origins)
    assert (answer.text, answer.headers["access-control-allow-origin"], answer.headers["vary"]) == (
        "in",
        origin,
        "Origin",
    )
    asked = {"origin": origin, "access-control-request-headers": "content-type, x-stainless-os"}
    before = guarded(method="OPTIONS", headers=asked, origins=origins)
    assert (before.status_code, before.text) == (204, "")
    assert before.headers["access-control-allow-headers"] == "content-type, x-stainless-os"
    assert "DELETE" in before.headers["access-control-allow-methods"]
    assert before.headers["access-control-allow-origin"] == origin


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "http://localhost.evil.example", "null", "http://localhost:3000.evil.example", "x" * 5000],
)
def test_origins_that_may_not(origin: str) -> None:
    for method in ("GET", "POST", "OPTIONS"):
        answer = guarded(method=method, headers={"origin": origin})
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers


def test_a_page_of_the_server_itself_is_no_stranger() -> None:
    assert guarded("box.example:11434", headers={"origin": "http://box.example:11434"}, loopback=False).text == "in"


def test_an_origin_of_a_star_lets_all_pages_in() -> None:
    assert guarded(headers={"origin": "http://any.example"}, origins=("*",)).text == "in"


def test_keys() -> None:
    keys = OneKey()
    assert guarded(keys=keys, headers={"authorization": "Bearer right"}).text == "in"
    assert guarded(keys=keys, path="/").text == guarded(keys=keys, path="/api/version").text == "in"
    for path, shape in (("/api/tags", str), ("/v1/models", dict), ("/v1/messages", dict)):
        answer = guarded(keys=keys, path=path, headers={"authorization": "Bearer wrong"})
        assert answer.status_code == 401
        assert isinstance(answer.json()["error"], shape)
