"""What LiteLLM is told of a site, and what a check says of proxies that are not as they should be."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import yaml

from bident.client import Credentials
from bident.connect.litellm import LiteLlm
from bident.connect.neighbour import Hop, Wanted
from bident.connect.site import Address, Site, TensorModel, TextModel
from bident.errors import Code, ServeError

HERE = Address("http://127.0.0.1:11434", "http://bident.lan:11434")
TENSOR = Address("http://127.0.0.1:8000", "http://bident.lan:8000")


def text_model(name: str, *capabilities: str) -> TextModel:
    return TextModel(name, frozenset(capabilities), 8192)


def tensor_model(name: str) -> TensorModel:
    return TensorModel(name, "1", {"inputs": [], "outputs": []}, {})


SITE = Site(
    tensor=TENSOR,
    metrics=None,
    text=HERE,
    models=(tensor_model("iris"), tensor_model("a b")),
    text_models=(
        text_model("smollm2:latest", "completion"),
        text_model("hf.co/o/eyes:Q4", "completion", "tools", "vision"),
        text_model("minilm:latest", "embedding"),
    ),
)


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BIDENT_API_KEY", raising=False)
    monkeypatch.delenv("LITELLM_MASTER_KEY", raising=False)


def config(site: Site = SITE, *models: str, **options: str) -> dict[str, Any]:
    (file,) = LiteLlm().files(site, Wanted(models, options))
    assert file.path == "config.yaml"
    assert all(len(line) <= 120 for line in file.text.splitlines())
    read: dict[str, Any] = yaml.safe_load(file.text)
    return read


def test_every_model_by_its_short_name() -> None:
    chat, eyes, embedder = config()["model_list"]
    assert chat == {
        "model_name": "smollm2",
        "litellm_params": {"model": "ollama_chat/smollm2:latest", "api_base": "http://bident.lan:11434"},
        "model_info": {"mode": "chat", "supports_function_calling": False, "supports_vision": False},
    }
    assert eyes["model_name"] == "hf.co/o/eyes:Q4"
    assert eyes["model_info"] == {"mode": "chat", "supports_function_calling": True, "supports_vision": True}
    assert embedder == {
        "model_name": "minilm",
        "litellm_params": {
            "model": "openai/minilm:latest",
            "api_base": "http://bident.lan:11434/v1",
            "api_key": "none",
        },
        "model_info": {"mode": "embedding"},
    }


def test_openais_route() -> None:
    (chat,) = config(SITE, "smollm2:latest", route="openai")["model_list"]
    assert chat["litellm_params"]["model"] == "openai/smollm2:latest"
    assert chat["litellm_params"]["api_base"] == "http://bident.lan:11434/v1"


def test_only_the_paths_of_models_pass() -> None:
    passed = config()["general_settings"]["pass_through_endpoints"]
    assert [(each["path"], each["target"]) for each in passed] == [
        ("/tensor/v2/health", "http://bident.lan:8000/v2/health"),
        ("/tensor/v2/models", "http://bident.lan:8000/v2/models"),
    ]
    assert all(each["auth"] and each["include_subpath"] and "headers" not in each for each in passed)
    _, named = config(SITE, "a b")["general_settings"]["pass_through_endpoints"]
    assert (named["path"], named["target"]) == ("/tensor/v2/models/a b", "http://bident.lan:8000/v2/models/a%20b")
    assert "pass_through_endpoints" not in config(SITE, "minilm:latest")["general_settings"]


def test_keys_are_named_and_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIDENT_API_KEY", "s3cret")
    monkeypatch.setenv("LITELLM_MASTER_KEY", "s3cret")
    made = config(SITE, langfuse="true")
    assert {each["litellm_params"]["api_key"] for each in made["model_list"]} == {"os.environ/BIDENT_API_KEY"}
    (headers, _) = (each["headers"] for each in made["general_settings"]["pass_through_endpoints"])
    assert headers == {"Authorization": "Bearer os.environ/BIDENT_API_KEY"}
    assert made["general_settings"]["master_key"] == "os.environ/LITELLM_MASTER_KEY"
    assert "s3cret" not in json.dumps(made)
    assert any("BIDENT_API_KEY" in step for step in LiteLlm().steps(SITE, Wanted()))


def test_the_key_of_a_server_that_was_started_here_is_wanted_too() -> None:
    """``bident up --api-key-file`` is remembered; nothing about it is in the environment."""
    keyed = replace(HERE, credentials=Credentials(api_key="s3cret"))
    made = config(replace(SITE, text=keyed))
    assert {each["litellm_params"]["api_key"] for each in made["model_list"]} == {"os.environ/BIDENT_API_KEY"}
    assert "s3cret" not in json.dumps(made)


@pytest.mark.parametrize(("choice", "redacted"), [("true", True), ("text", False)])
def test_langfuse_only_where_asked_for(choice: str, redacted: bool) -> None:
    assert config()["litellm_settings"] == {"drop_params": True}
    settings = config(SITE, langfuse=choice)["litellm_settings"]
    assert (settings["callbacks"], settings["turn_off_message_logging"]) == (["langfuse_otel"], redacted)
    steps = LiteLlm().steps(SITE, Wanted(options={"langfuse": choice}))
    assert any("LANGFUSE_OTEL_HOST" in step for step in steps)
    assert not any("LANGFUSE" in step for step in LiteLlm().steps(SITE, Wanted()))


def test_a_site_of_one_server() -> None:
    assert config(Site(None, None, HERE, (), SITE.text_models))["general_settings"] == {
        "master_key": "os.environ/LITELLM_MASTER_KEY"
    }
    alone = config(Site(TENSOR, None, None, SITE.models))
    assert alone["model_list"] == []
    assert len(alone["general_settings"]["pass_through_endpoints"]) == 2


def test_nothing_to_connect() -> None:
    with pytest.raises(ServeError, match="bident pull smollm2") as caught:
        config(Site(TENSOR, None, HERE))
    assert caught.value.code is Code.NOT_FOUND


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("route", "ollama", "ollama_chat or openai"),
        ("langfuse", "yes", "false, true or text"),
        ("proxy", "127.0.0.1:4000", "an address such as"),
        ("proxy", "http://x:99999", "an address such as"),
        ("proxy", "http://[::1", "an address such as"),
        ("proxy", "http://a b", "an address such as"),
    ],
)
def test_choices_that_are_none(option: str, value: str, said: str) -> None:
    for ask in (LiteLlm().files, LiteLlm().steps, LiteLlm().check):
        with pytest.raises(ServeError, match=said):
            list(ask(SITE, Wanted(options={option: value})))


def test_the_start_is_on_the_port_of_the_proxy() -> None:
    *_, start, check = LiteLlm().steps(SITE, Wanted(options={"proxy": "http://127.0.0.1:4999/"}))
    assert start.endswith("--host 127.0.0.1 --port 4999")
    assert check == "bident connect litellm --check --set proxy=http://127.0.0.1:4999"


class Stranger(ThreadingHTTPServer):
    """Answers every path as ``answers`` has it: a status and a body."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.answers: dict[str, tuple[int, str]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Answering(BaseHTTPRequestHandler):
    server: Stranger

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, text = self.server.answers.get(self.path, (404, "not here"))
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Nothing: tests are quiet."""


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    with Stranger() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


LIVES = {"/health/liveliness": (200, '"I\'m alive!"'), "/v1/models": (200, '{"data": [{"id": "minilm"}]}')}
TENSORS_ALONE = Site(TENSOR, None, None, (tensor_model("iris"),))


def last_hop(proxy: str, site: Site = TENSORS_ALONE) -> Hop:
    *_, last = LiteLlm().check(site, Wanted(options={"proxy": proxy}))
    return last


@pytest.mark.parametrize(
    ("answers", "hop", "seen"),
    [
        ({}, "LiteLLM", "answers 404, but not as LiteLLM does"),
        ({"/v1/models": (500, "")}, "LiteLLM's key", "wants a key, and LITELLM_MASTER_KEY is not set here"),
        ({"/v1/models": (200, "<html>")}, "LiteLLM's key", "/v1/models answered something that is not JSON"),
        ({"/v1/models": (200, "[]")}, "LiteLLM's key", "the answer is not what it should be"),
        ({"/tensor/v2/models/iris": (200, "7")}, "LiteLLM -> /tensor -> iris", "the answer is not what it should be"),
        (
            {"/tensor/v2/models/iris": (502, '{"error": "unreachable"}')},
            "LiteLLM -> /tensor -> iris",
            "502 unreachable",
        ),
    ],
)
def test_proxies_that_are_not_as_they_should_be(
    stranger: Stranger, answers: dict[str, tuple[int, str]], hop: str, seen: str
) -> None:
    stranger.answers = {**LIVES, **answers} if answers else {}
    last = last_hop(stranger.url)
    assert (last.name, last.works, seen in last.seen, bool(last.cure)) == (hop, False, True, True), last


def test_a_proxy_that_takes_anybody_is_told_apart(stranger: Stranger) -> None:
    described = {"/tensor/v2/models/iris": (200, '{"inputs": [{"name": "X"}], "outputs": [{"name": "label"}]}')}
    stranger.answers = {**LIVES, **described}
    hops = list(LiteLlm().check(TENSORS_ALONE, Wanted(options={"proxy": stranger.url})))
    assert [hop.works for hop in hops] == [True] * 4
    assert "takes requests without one" in hops[1].seen
    assert hops[-1].seen == "X in, label out"


def test_a_key_that_it_does_not_take(stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_MASTER_KEY", "sk-wrong")
    refusal = {"error": {"message": "No connected db.", "type": "no_db_connection"}}
    stranger.answers = {**LIVES, "/v1/models": (400, json.dumps(refusal))}
    last = last_hop(stranger.url)
    assert (last.name, last.seen) == (
        "LiteLLM's key",
        "it does not take the key in LITELLM_MASTER_KEY (400 No connected db.)",
    )
