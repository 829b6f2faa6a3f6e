"""Restricted APIs and API keys over HTTP: refused before anything is done, on every route of their group."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from http_line import Line, LineServer, get, post

from bident.doors.access import Access, Api
from bident.doors.http.limits import HttpLimits
from bident.doors.http.routes import Resource, Routes
from bident.settings.values import RestrictedApi
from tests.unit.doors.http.conftest import EngineDoor

HEADER = "Admin-Key: s3cret"

ROUTES = {
    Api.HEALTH: [
        "GET /v2/health/live",
        "GET /v2/health/ready",
        "GET /v2/models/m/ready",
        "GET /v2/models/m/versions/1/ready",
    ],
    Api.METADATA: ["GET /v2", "GET /v2/models/m", "GET /v2/models/m/versions/1"],
    Api.INFERENCE: [
        "POST /v2/models/m/infer",
        "POST /v2/models/m/versions/1/generate",
        "POST /v2/models/m/generate_stream",
    ],
    Api.MODEL_CONFIG: ["GET /v2/models/m/config", "GET /v2/models/m/versions/1/config"],
    Api.STATISTICS: ["GET /v2/models/stats", "GET /v2/models/m/stats", "GET /v2/models/m/versions/1/stats"],
    Api.MODEL_REPOSITORY: [
        "POST /v2/repository/index",
        "POST /v2/repository/r/index",
        "POST /v2/repository/models/m/load",
        "POST /v2/repository/r/models/m/unload",
    ],
    Api.SHARED_MEMORY: [
        f"{verb} /v2/{kind}sharedmemory{region}/{what}"
        for kind in ("system", "cuda")
        for region in ("", "/region/r")
        for verb, what in (("GET", "status"), ("POST", "register"), ("POST", "unregister"))
    ],
}
"""Triton's table of which routes belong to which API."""


def guarded(routes: Routes | None = None, *apis: Api, limits: HttpLimits | None = None) -> LineServer:
    server = LineServer(routes, limits)
    server.access = Access([RestrictedApi(frozenset(apis), "Admin-Key", "s3cret")])
    return server


@pytest.fixture
def routes() -> Routes:
    """Something that is restricted, and something that is not."""
    made = Routes()
    made.add("POST", "/admin", lambda exchange: exchange.respond_json(exchange.body), api=Api.MODEL_REPOSITORY)
    made.add("POST", "/infer", lambda exchange: exchange.respond_json(exchange.body), api=Api.INFERENCE)
    return made


@pytest.mark.parametrize(("api", "route"), [(api, route) for api, group in ROUTES.items() for route in group])
def test_every_route_belongs_to_its_api(door: EngineDoor, api: Api, route: str) -> None:
    verb, target = route.split()
    found = door.routes.find(target.encode(), verb.encode())
    assert isinstance(found, tuple)
    resource: Resource = found[0]
    assert resource.api is api


def test_no_route_is_without_an_api(door: EngineDoor) -> None:
    nodes, unnamed = [door.routes._root], []
    while nodes:
        node = nodes.pop()
        unnamed += [resource for resource in node.resources.values() if resource.api is None]
        nodes += [child for child in (*node.children.values(), node.parameter, node.number) if child is not None]
    assert unnamed == []


def test_tritons_words_and_a_connection_that_stays(routes: Routes) -> None:
    line = Line(guarded(routes, Api.MODEL_REPOSITORY))
    line.send(post("/admin", b"1") + post("/admin", b"2", "Admin-Key: S3CRET") + post("/infer", b"3"))
    line.send(post("/admin", b"4", HEADER) + post("/admin", b"5", "ADMIN-KEY: s3cret"))
    refused = {"error": "This API is restricted, expecting header 'Admin-Key'"}
    answers = line.answers()
    assert [answer.status for answer in answers] == [403, 403, 200, 200, 200]
    assert [json.loads(answer.body) for answer in answers] == [refused, refused, 3, 4, 5]
    assert not line.is_closed


def test_a_body_is_not_received_for_nothing(routes: Routes) -> None:
    line = Line(guarded(routes, Api.MODEL_REPOSITORY, limits=HttpLimits(small_body=10)))
    line.send(b"POST /admin HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n")
    assert line.statuses() == [403]
    assert line.is_closed


def test_no_client_is_told_to_continue_for_nothing(routes: Routes) -> None:
    line = Line(guarded(routes, Api.MODEL_REPOSITORY))
    line.send(b"POST /admin HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
    assert line.statuses() == [403]


class ChangingKeys:
    def __init__(self) -> None:
        self.valid = b"k"

    def allows(self, headers: Mapping[bytes, bytes]) -> bool:
        return headers.get(b"x-api-key") == self.valid


def test_a_key_that_is_withdrawn_ends_what_a_connection_may(routes: Routes) -> None:
    keys = ChangingKeys()
    server = LineServer(routes)
    server.access = Access([], keys)
    line = Line(server)
    for _ in range(3):  # the second and third are recognised without being parsed
        line.send(post("/infer", b"1", "X-Api-Key: k"))
    keys.valid = b"new"
    line.send(post("/infer", b"1", "X-Api-Key: k"))
    line.send(post("/infer", b"1", "X-Api-Key: new"))
    answers = line.answers()
    assert [answer.status for answer in answers] == [200, 200, 200, 401, 200]
    assert answers[3].headers[b"www-authenticate"] == b"Bearer"
    assert b"API key" in answers[3].body


def test_what_is_not_there_is_not_there_whoever_asks(routes: Routes) -> None:
    line = Line(guarded(routes, Api.MODEL_REPOSITORY))
    line.send(get("/nothing") + get("/admin"))
    assert line.statuses() == [404, 405]
