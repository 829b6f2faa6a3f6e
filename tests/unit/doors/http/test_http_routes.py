"""From targets to what serves them."""

from __future__ import annotations

import tracemalloc

import pytest

from bident.doors.http.exchange import Exchange
from bident.doors.http.routes import Routes, Unrouted


def serve(exchange: Exchange) -> None:
    raise AssertionError("nothing is served here")


@pytest.fixture
def routes() -> Routes:
    routes = Routes()
    routes.add("GET", "/v2", serve)
    routes.add("GET", "/v2/models/stats", serve, defaults=("every", ""))
    routes.add("GET", "/v2/models/{}", serve, defaults=("",))
    routes.add("GET", "/v2/models/{}/ready", serve, defaults=("",))
    routes.add("GET", "/v2/models/{}/versions/{#}/ready", serve)
    routes.add("POST", "/v2/models/{}/infer", serve, binary=True, defaults=("",))
    routes.add("POST", "/v2/models/{}/versions/{#}/infer", serve, binary=True)
    return routes


def params(routes: Routes, target: str, method: str = "GET") -> tuple[str, ...]:
    found = routes.find(target.encode("latin-1"), method.encode())
    assert not isinstance(found, Unrouted), found
    return found[1]


def status(routes: Routes, target: str, method: str = "GET") -> int:
    found = routes.find(target.encode("latin-1"), method.encode())
    assert isinstance(found, Unrouted), found
    return found.status


@pytest.mark.parametrize(
    ("name", "decoded"),
    [
        ("m", "m"),
        ("a%20b", "a b"),
        ("a+b", "a+b"),
        ("m%C3%B6del", "m\u00f6del"),
        ("100%25", "100%"),
        ("100%", "100%"),
        ("%zz", "%zz"),
        ("%2525", "%25"),
        ("%252e%252e", "%2e%2e"),
        ("%2e%2e", ".."),
        ("..", ".."),
        ("org%2Fmodel", "org/model"),
        ("%2F", "/"),
        ("a%00b", "a\0b"),
        ("v1.2", "v1.2"),
        ("infer", "infer"),
        ("versions", "versions"),
        ("ready", "ready"),
        ("models", "models"),
        ("a%3Fb%23c", "a?b#c"),
    ],
)
def test_a_name_is_decoded_exactly_once(routes: Routes, name: str, decoded: str) -> None:
    assert params(routes, f"/v2/models/{name}/infer", "POST") == (decoded, "")
    assert params(routes, f"/v2/models/{name}/versions/3/infer", "POST") == (decoded, "3")
    assert params(routes, f"/v2/models/{name}") == (decoded, "")


def test_a_literal_segment_wins_over_a_name(routes: Routes) -> None:
    assert params(routes, "/v2/models/stats") == ("every", "")
    assert params(routes, "/v2/models/stats/ready") == ("stats", "")


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "",
        "*",
        "/v2/",
        "//v2",
        "/V2",
        "/v2/models",
        "/v2/models/",
        "/v2//models/m/ready",
        "/v2/models//ready",
        "/v2/models/m/ready/",
        "/v2/models/m/ready/more",
        "/v2/models/m/versions",
        "/v2/models/m/versions/1",
        "/v2/models/m/versions/1x/ready",
        "/v2/models/m/versions/-1/ready",
        "/v2/models/m/versions/%C2%B2/ready",
        "/v2/models/m/versions//ready",
        "/v2/models/a/b/ready",
        "/v2/models/../../etc/passwd",
        "v2",
        "/x://v2",
        "/x://here/v2",
    ],
)
def test_what_leads_nowhere(routes: Routes, target: str) -> None:
    assert status(routes, target) == 404


@pytest.mark.parametrize("suffix", ["?", "?a=b", "?/v2/models/m/ready", "#x", "?x#y", "#x?y"])
def test_query_and_fragment_are_cut_off(routes: Routes, suffix: str) -> None:
    assert params(routes, f"/v2/models/m/ready{suffix}") == ("m", "")


@pytest.mark.parametrize("origin", ["http://here", "http://here:8000", "https://u:p@[::1]:8000", "HTTP://x"])
def test_the_absolute_form_of_a_target(routes: Routes, origin: str) -> None:
    assert params(routes, f"{origin}/v2/models/m/ready?x") == ("m", "")
    assert status(routes, origin) == 404


def test_another_verb_is_405_with_those_that_are_allowed(routes: Routes) -> None:
    for target, method, allow in [
        ("/v2", "POST", (b"GET", b"HEAD")),
        ("/v2/models/m/infer", "GET", (b"POST",)),
        ("/v2/models/m/infer", "HEAD", (b"POST",)),
        ("/v2/models/stats", "DELETE", (b"GET", b"HEAD")),
        ("/v2/models/m", "get", (b"GET", b"HEAD")),
    ]:
        found = routes.find(target.encode(), method.encode())
        assert isinstance(found, Unrouted)
        assert (found.status, found.allow) == (405, allow)
        assert found.headers == [(b"Allow", b", ".join(allow))]


def test_head_is_served_where_get_is(routes: Routes) -> None:
    assert params(routes, "/v2/models/m/ready", "HEAD") == ("m", "")


@pytest.mark.parametrize("target", ["/v2/models/%ff/ready", "/v2/models/%C3/ready", "/%80"])
def test_a_path_that_is_no_text(routes: Routes, target: str) -> None:
    assert status(routes, target) == 400


def test_a_fallback_serves_what_nothing_else_does() -> None:
    routes = Routes(fallback=serve)
    routes.add("GET", "/metrics", serve)
    assert params(routes, "/anything") == ()
    assert status(routes, "/anything", "POST") == 404
    assert status(routes, "/metrics", "POST") == 405


def test_targets_of_strangers_do_not_fill_the_memory(routes: Routes) -> None:
    tracemalloc.start()
    try:
        for number in range(20_000):
            target = f"/v2/models/{number}/ready?{'x' * 50_000 if number < 500 else ''}"
            assert params(routes, target) == (str(number), "")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 5_000_000


def test_a_path_of_many_segments_is_not_taken_apart(monkeypatch: pytest.MonkeyPatch, routes: Routes) -> None:
    decoded: list[bytes] = []
    monkeypatch.setattr("bident.doors.http.routes.unquote_to_bytes", lambda part: decoded.append(part) or part)
    assert status(routes, "/v2/models" + "/a" * 30_000) == 404
    assert len(decoded) < 10
