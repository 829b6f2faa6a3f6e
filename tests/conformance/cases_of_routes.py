"""Every path with every verb, and what is said about server, models, repository and figures."""

from __future__ import annotations

from collections.abc import Iterator

from judged_case import Case, case
from judged_figures import MetricsStep
from judged_http import HttpStep, get, post
from judged_repository import MODELS

VERBS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS")
PATHS = (
    *("/", "/v2", "/v2/", "/v1", "/v2/x", "/v2//", "//v2", "/v2?x=1", "/metrics", "/index.html", "/V2"),
    *("/v2/health", "/v2/health/live", "/v2/health/ready", "/v2/health/live/", "/v2/health/x", "/v2/health/live?x"),
    *("/v2/models", "/v2/models/", "/v2/models/stats", "/v2/models/nobody", "/v2/models/rows", "/v2/models/rows/"),
    *("/v2/models/rows/x", "/v2/models/rows/ready", "/v2/models/rows/config", "/v2/models/broken/stats"),
    *("/v2/models/rows/versions", "/v2/models/rows/versions/", "/v2/models/rows/versions/1/ready"),
    *("/v2/models/rows/versions/1", "/v2/models/rows/versions/1/config", "/v2/models/rows/versions/x"),
    *("/v2/models/rows/versions/1/x", "/v2/models/rows/versions/2", "/v2/models/rows/versions/2/ready"),
    *(
        "/v2/models/rows/infer",
        "/v2/models/rows/versions/1/infer",
        "/v2/models/rows/generate",
        "/v2/models/rows/infer/",
    ),
    *("/v2/models/rows/generate_stream", "/v2/models/rows/trace/setting", "/v2/models/rows/versions/1/trace/setting"),
    *("/v2/repository", "/v2/repository/index", "/v2/repository/x/index", "/v2/repository/index/"),
    *("/v2/repository/models", "/v2/repository/models/rows", "/v2/repository/x/models/rows/load"),
    *("/v2/trace", "/v2/trace/setting", "/v2/logging", "/v2/logging/x"),
    *("/v2/systemsharedmemory", "/v2/systemsharedmemory/status", "/v2/systemsharedmemory/region/x/status"),
    *("/v2/systemsharedmemory/region/x/register", "/v2/systemsharedmemory/unregister", "/v2/cudasharedmemory/status"),
    *("/v2/cudasharedmemory/region/x/status", "/v2/cudasharedmemory/region/x/register"),
    *("/v2/cudasharedmemory/unregister", "/v2/systemsharedmemory/register", "/v2/systemsharedmemory/region//register"),
)
SUBJECTS = (*MODELS, "chain", "failing", "stream", "broken", "nobody", "%72ows", "rows%2Fx", "ro%20ws", "R0WS")


def verbs() -> Iterator[Case]:
    for path in PATHS:
        for verb in VERBS:
            yield case(f"http {verb} {path}", HttpStep(verb, path))


def said() -> Iterator[Case]:
    for model in SUBJECTS:
        base = f"/v2/models/{model}"
        for what in ("", "/ready", "/config", "/stats"):
            if what != "/stats":
                yield case(f"http GET {base}{what} of a model", get(base + what))
    for version in ("1", "2", "3", "0", "01", "-1", "18446744073709551616"):
        for what in ("", "/ready", "/config", "/infer"):
            path = f"/v2/models/versions/versions/{version}{what}"
            if len(version) > 19 and what == "/ready":
                continue  # not ready, in other words
            yield case(f"http {path}", post(path, b"{}") if what == "/infer" else get(path))


def figures() -> Iterator[Case]:
    """The figures of a model that nobody else asks, after the same questions; times are left out."""
    one = {"name": "INPUT0", "shape": [1, 4], "datatype": "INT32", "data": [1, 2, 3, 4]}
    bad = {"inputs": [one]}
    good = {"inputs": [one, {**one, "name": "INPUT1"}]}
    three = [{**item, "shape": [3, 4], "data": [0] * 12} for item in good["inputs"]]
    path = "/v2/models/counted/infer"
    asked = [post(path, good), post(path, {"inputs": three}), post(path, bad), post(path, good), post(path, b"{")]
    statistics = [get("/v2/models/counted/stats"), get("/v2/models/counted/versions/1/stats")]
    yield case("http stats before", statistics[0])
    yield case("http stats after questions", *asked, *statistics, MetricsStep("counted"))
    cached = {"inputs": [{"name": "X", "shape": [1], "datatype": "INT32", "data": [77]}]}
    asks = post("/v2/models/cached/infer", cached)
    yield case("http stats of a cache", asks, asks, asks, get("/v2/models/cached/stats"), MetricsStep("cached"))
    for path in ("/v2/models/nobody/stats", "/v2/models/unloaded/stats", "/v2/models/counted/versions/9/stats"):
        yield case(f"http {path}", get(path))


def cases() -> Iterator[Case]:
    for family in (verbs, said, figures):
        yield from family()
