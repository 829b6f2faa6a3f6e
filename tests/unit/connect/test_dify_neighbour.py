"""``bident connect dify``: the files for a site, what a person is told, and the hops."""

from __future__ import annotations

import json
import re
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from dify_format import checked
from dify_models import DETECT, FIT, IRIS, UNFIT, X, Y, model
from sites import NOBODY, SMOLLM2, answering

from bident.client.credentials import API_KEY_VARIABLE, Credentials
from bident.connect.dify import Dify
from bident.connect.neighbour import Wanted
from bident.connect.site import Address, Site, TextModel
from bident.errors import Code, ServeError

HERE = "http://127.0.0.1:8000"
DOCKER = "host.docker.internal"


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    monkeypatch.delenv(API_KEY_VARIABLE, raising=False)


def site(*models, host="", texts=(), here=HERE):
    theirs = here.replace("127.0.0.1", host) if host else here
    text = Address("http://127.0.0.1:11434", f"http://{host or '127.0.0.1'}:11434") if texts else None
    return Site(Address(here, theirs) if models else None, None, text, tuple(models), tuple(texts))


def files(where, *names, **options):
    return {file.path: file.text for file in Dify().files(where, wanted(*names, **options))}


def wanted(*names, **options):
    return Wanted(names, {name.replace("_", "-"): value for name, value in options.items()})


def env(text):
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_there_is_an_app_for_every_model_that_can_be_one():
    found = files(site(*FIT, *(each for each, _ in UNFIT)))
    apps = {path: checked(text) for path, text in found.items() if path.startswith("workflows/")}
    assert sorted(app["app"]["name"] for app in apps.values()) == sorted(each.name for each in FIT)
    assert "workflows/many_slashes.yml" in apps
    said = "\n".join(Dify().steps(site(*FIT, *(each for each, _ in UNFIT)), wanted()))
    assert all(f"No workflow for {each.name}: {why}" in said for each, why in UNFIT)


def test_steps_of_an_ensemble_are_left_to_it():
    steps = {"step": [{"model_name": "iris"}]}
    whole = model("whole", [X], [Y], ensemble_scheduling=steps)
    assert [path for path in files(site(whole, IRIS)) if "workflows" in path] == ["workflows/whole.yml"]
    assert [path for path in files(site(whole, IRIS), "iris") if "workflows" in path] == ["workflows/iris.yml"]


def test_dify_in_containers_is_taken_for_granted_until_a_name_is_said():
    found = files(site(IRIS))
    assert f"http://{DOCKER}:8000" in found["workflows/iris.yml"]
    assert env(found["ssrf.env"]) == [f"SSRF_PROXY_ALLOW_PRIVATE_DOMAINS={DOCKER}"]
    assert f'"{DOCKER}:host-gateway"' in found["docker-compose.override.yaml"]
    named = files(site(IRIS, host="bident"))
    assert "http://bident:8000" in named["workflows/iris.yml"]
    assert env(named["ssrf.env"]) == ["SSRF_PROXY_ALLOW_PRIVATE_DOMAINS=bident"]
    assert "docker-compose.override.yaml" not in named


@pytest.mark.parametrize(("host", "address"), [("172.17.0.1", "172.17.0.1/32"), ("fd00::7", "fd00::7/128")])
def test_an_address_is_let_through_as_one(host, address):
    where = replace(site(IRIS), tensor=Address(HERE, f"http://{f'[{host}]' if ':' in host else host}:8000"))
    found = files(where)
    assert env(found["ssrf.env"]) == [f"SSRF_PROXY_ALLOW_PRIVATE_IPS={address}"]
    assert f"acl bident dst {host}" in found["dify-1.14/bident.conf"]


def test_text_models_are_filled_in_by_hand():
    sees = TextModel("llava:7b", frozenset({"completion", "vision", "tools"}), 4096)
    ranks = TextModel("bge:latest", frozenset({"rerank"}), 0)
    found = files(site(texts=(SMOLLM2, sees, ranks)))
    assert list(found) == ["model-providers.txt"]
    text = found["model-providers.txt"]
    assert "[Ollama: smollm2:latest]" in text
    assert f"http://{DOCKER}:11434\n" in text
    assert f"http://{DOCKER}:11434/v1\n" in text
    assert "[Ollama: bge:latest]" not in text
    assert "[OpenAI-API-compatible: bge:latest]" in text
    assert "8192" in text
    llava = text.partition("[Ollama: llava:7b]")[2].partition("[")[0]
    assert [line.split(":")[1].strip() for line in llava.splitlines() if "support" in line] == ["Yes", "Yes"]


def test_only_what_was_asked_for():
    assert list(files(site(IRIS, DETECT, texts=(SMOLLM2,)), "smollm2:latest")) == ["model-providers.txt"]
    found = files(site(IRIS, DETECT, texts=(SMOLLM2,)), "iris")
    assert "workflows/iris.yml" in found
    assert "workflows/detect.yml" not in found
    assert list(json.loads(found["openapi.json"])["paths"]) == ["/v2/models/iris/generate"]


def test_choices_reach_the_apps():
    found = files(site(IRIS, DETECT), dsl_version="0.7.0", top="2", pictures="base64", api_key="yes")
    app = checked(found["workflows/iris.yml"])
    assert app["version"] == "0.7.0"
    assert '"classification": 2' in found["workflows/iris.yml"]
    assert "paragraph" in found["workflows/detect.yml"]
    assert "value_type: " in found["workflows/iris.yml"]
    assert json.loads(found["openapi.json"])["security"] == [{"key": []}]
    assert "api_key" in " ".join(Dify().steps(site(IRIS), wanted(api_key="yes")))


def test_who_shows_a_key_gets_apps_that_show_one(monkeypatch):
    monkeypatch.setenv(API_KEY_VARIABLE, "hush")
    found = files(site(IRIS))
    assert "{{#env.api_key#}}" in found["workflows/iris.yml"]
    assert all("hush" not in text for text in found.values())
    assert "{{#env.api_key#}}" not in files(site(IRIS), api_key="no")["workflows/iris.yml"]


def test_the_key_of_a_server_that_was_started_here_is_wanted_too():
    served = replace(site(IRIS), tensor=Address(HERE, HERE, Credentials(api_key="hush")))
    assert "{{#env.api_key#}}" in files(served)["workflows/iris.yml"]


@pytest.mark.parametrize(
    ("option", "value"),
    [("dsl_version", "1"), ("top", "0"), ("top", "31"), ("top", "x"), ("pictures", "url"), ("api_key", "")],
)
def test_a_choice_that_there_is_not(option, value):
    with pytest.raises(ServeError, match=f"--set {option.replace('_', '-')}={value}: it is ") as caught:
        files(site(IRIS), **{option: value})
    assert caught.value.code is Code.INVALID_ARG


def test_nothing_to_connect():
    with pytest.raises(ServeError, match="no model is loaded that Dify could use"):
        files(site())
    with pytest.raises(ServeError, match="pixels: nobody fills in"):
        files(site(UNFIT[0][0]), "pixels")


def test_every_fitting_model_is_a_tool():
    document = json.loads(files(site(*FIT, *(each for each, _ in UNFIT)))["openapi.json"])
    operations = {path: item["post"] for path, item in document["paths"].items()}
    assert "/v2/models/many%2Fslashes%3F/generate" in operations
    identifiers = [operation["operationId"] for operation in operations.values()]
    assert len(set(identifiers)) == len(identifiers)
    schema = operations["/v2/models/iris/generate"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema == {
        "type": "object",
        "properties": {
            "X": {
                "description": "a JSON list of 4 numbers",
                "type": "array",
                "items": {"type": "number"},
                "minItems": 4,
                "maxItems": 4,
            }
        },
        "required": ["X"],
    }


def test_the_page_names_every_file_and_every_choice():
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "dify.md").read_text(encoding="utf-8")
    paths = files(site(IRIS, texts=(SMOLLM2,)))
    assert [path for path in paths if f"`{path.replace('iris', 'MODEL')}`" not in page] == []
    assert set(re.findall(r"--set ([a-z-]+)=", page)) == set(Dify.options)


class Tried:
    """The hops of a check."""

    def __init__(self, where, **options):
        self.hops = list(Dify().check(where, wanted(**options)))
        self.last = self.hops[-1]


@contextmanager
def proxy(status, headers=()):
    """Something that answers every request as Squid would, and notes what it was asked for."""
    asked = []

    class Door(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, self.headers["Host"]))
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


@pytest.fixture
def served():
    """A site with a tensor server that says it is ready, under the name localhost too."""
    with answering({"/v2/health/live": "", "/v2/health/ready": ""}) as url:
        yield site(IRIS, here=url, host="localhost")


def test_the_way_as_far_as_it_can_be_seen(served):
    with answering({"/console/api/setup": {"step": "finished"}}) as dify, proxy(200) as (door, asked):
        tried = Tried(served, dify=dify, proxy=door)
    assert [hop.name for hop in tried.hops] == [
        "here -> tensor server",
        "Dify -> tensor server",
        "here -> Dify",
        "Dify's proxy -> tensor server",
    ]
    assert all(hop.works for hop in tried.hops)
    assert served.tensor is not None
    host = served.tensor.theirs.removeprefix("http://")
    assert asked == [(f"{served.tensor.theirs}/v2/health/ready", host)]


def test_the_text_server_is_on_the_way_too(served):
    with answering({"/api/version": {"version": "0.1"}}) as url:
        text = Address(url, url.replace("127.0.0.1", "localhost"))
        assert [hop.works for hop in Tried(replace(served, text=text)).hops] == [True, True, True]
    away = Tried(replace(served, text=Address(url, url.replace("127.0.0.1", "localhost")))).last
    assert (away.name, away.works) == ("Dify -> text server", False)
    assert "--text-host=0.0.0.0 --text-api-key-file=FILE" in away.cure


def test_nobody_at_home():
    tried = Tried(site(IRIS, here=NOBODY))
    assert len(tried.hops) == 1
    assert not tried.last.works


def test_a_container_s_name_need_not_mean_anything_here(served):
    named = replace(served, tensor=replace(served.tensor, theirs="http://tensor.infer.invalid:8000"))
    tried = Tried(named)
    assert tried.last.works
    assert "not tried: tensor.infer.invalid has no meaning on this machine" in tried.last.seen


def test_a_server_that_listens_to_loopback_alone(served):
    """Another address of this machine stands for what containers see of it."""
    away = served.tensor.here.replace("127.0.0.1", "127.0.0.2")
    tried = Tried(replace(served, tensor=replace(served.tensor, theirs=away)))
    assert not tried.last.works
    assert "--http-address=0.0.0.0 --api-key-file=FILE" in tried.last.cure


@pytest.mark.parametrize(("platform", "works"), [("linux", False), ("darwin", True), ("win32", True)])
def test_docker_s_name_for_this_machine(served, monkeypatch, platform, works):
    monkeypatch.setattr("bident.connect.dify.way.sys.platform", platform)
    monkeypatch.setattr("bident.connect.dify.way.lan_address", lambda: "127.0.0.3")
    tried = Tried(replace(served, tensor=replace(served.tensor, theirs=served.tensor.here)))
    assert (tried.last.name, tried.last.works) == ("Dify -> tensor server", works)
    assert DOCKER in tried.last.seen


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"step": "not_started"}, "has no administrator yet"),
        ("<html>", "answered 200"),
        ({}, "is no Dify"),
        (404, "404"),
    ],
)
def test_what_is_no_working_dify(served, answer, said):
    with answering({"/console/api/setup": answer}) as dify:
        tried = Tried(served, dify=dify)
    assert (tried.last.name, tried.last.works) == ("here -> Dify", False)
    assert said in tried.last.seen
    assert tried.last.cure


@pytest.mark.parametrize(
    ("status", "headers", "seen", "cure"),
    [
        (
            403,
            [("X-Squid-Error", "ERR_ACCESS_DENIED 0")],
            "refused with 403",
            "SSRF_PROXY_ALLOW_PRIVATE_DOMAINS=localhost",
        ),
        (503, [("X-Squid-Error", "ERR_DNS_FAIL 0")], "could not reach", "must know localhost"),
        (403, [("Via", "1.1 ssrf_proxy (squid/5.7)")], "answered 403 through the proxy", "bident status"),
    ],
)
def test_what_the_proxy_does_to_the_request(served, status, headers, seen, cure):
    with proxy(status, headers) as (door, _):
        tried = Tried(served, proxy=door)
    assert not tried.last.works
    assert seen in tried.last.seen
    assert cure in tried.last.cure


def test_a_proxy_that_is_not_to_be_reached(served):
    tried = Tried(served, proxy=NOBODY)
    assert not tried.last.works
    assert "publish its port 3128" in tried.last.cure
