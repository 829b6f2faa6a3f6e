"""``ls``, ``ps``, ``show`` and ``run`` where there are two servers, and which of them is asked."""

from __future__ import annotations

import json

import pytest

from bident.cli import background, text_models, text_server
from bident.settings import parse_tensor_args, parse_text_args
from tests.unit.cli.conftest import Bident, FakeServer, iris
from tests.unit.cli.fake_ollama import FakeOllama


@pytest.fixture
def both(server: FakeServer, ollama: FakeOllama, bident: Bident, monkeypatch: pytest.MonkeyPatch) -> Bident:
    """The two servers stand where the commands look for them by themselves."""
    monkeypatch.setattr("bident.cli.target.DEFAULT_URL", server.url)
    monkeypatch.setattr("bident.cli.text_server.DEFAULT_URL", ollama.url)
    return bident


def test_ls_shows_the_models_of_both(both: Bident) -> None:
    shown = both("ls")
    assert shown.code == 0
    assert "iris" in shown.out
    assert "smollm2 " in shown.out
    assert "98 MB" in shown.out
    entries = json.loads(both("ls", "--json").out)
    assert [(entry["engine"], entry["name"]) for entry in entries] == [("tensor", "iris"), ("text", "smollm2:latest")]


def test_a_model_of_another_server_is_listed_and_shown(both: Bident, ollama: FakeOllama) -> None:
    ollama.remote = {"org/far": "https://other.example/v1"}
    (line,) = [line for line in both("ls").out.splitlines() if "org/far" in line]
    assert line.split() == ["org/far", "answered", "by", "https://other.example/v1"]
    assert "can do: completion" in both("show", "org/far").out


def test_one_that_is_down_is_said_and_no_error(both: Bident, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bident.cli.text_server.DEFAULT_URL", "http://127.0.0.1:9")
    result = both("ls", "--json")
    assert result.code == 0
    assert [entry["name"] for entry in json.loads(result.out)] == ["iris"]
    assert "text server: no server answers at http://127.0.0.1:9" in result.err
    monkeypatch.setattr("bident.cli.target.DEFAULT_URL", "http://127.0.0.1:9")
    neither = both("ps")
    assert neither.code == 1
    assert "tensor server: no server answers" in neither.err
    assert "text server: no server answers" in neither.err


def test_who_names_one_server_asks_that_one(both: Bident, server: FakeServer, ollama: FakeOllama) -> None:
    assert "smollm2" not in both("ls", "--url", server.url).out
    assert "iris" not in both("ls", "--text-url", ollama.url).out
    shown = both("ls", "--url", server.url, "--text-url", ollama.url).out
    assert "iris" in shown
    assert "smollm2" in shown


def test_ps_says_how_long_a_text_model_stays(both: Bident, ollama: FakeOllama) -> None:
    for_ever, name = "2300-01-01T00:00:00.5Z", "smollm2:latest"
    ollama.loaded = [{"name": name, "size": 5e8, "context_length": 4096, "expires_at": for_ever}]
    shown = both("ps").out
    assert "for ever" in shown
    assert "4096" in shown


def test_show_and_run_find_the_engine_of_a_model(both: Bident, ollama: FakeOllama) -> None:
    assert "backend onnxruntime" in both("show", "iris").out
    card = both("show", "smollm2").out
    assert "8192" in card
    assert "bident run smollm2" in card
    assert both("show", "SmolLM2", "--modelfile").out == "FROM smollm2\n\n"
    assert both("show", "iris", "--modelfile").code == 1
    assert "give it an input" in both("run", "iris").err
    assert "takes one input, not 2" in both("run", "iris", "1", "2").err


def test_a_name_in_both_has_to_be_told_apart(both: Bident, server: FakeServer) -> None:
    server.models["smollm2"] = iris()
    result = both("show", "smollm2")
    assert result.code == 1
    assert "'smollm2' is a tensor model and a text model: write 'smollm2:latest' for the text model" in result.err
    assert "text model, can do" in both("show", "smollm2:latest").out


def test_a_name_in_none_gets_the_nearest(both: Bident) -> None:
    result = both("run", "smolm2", "x")
    assert result.code == 1
    assert "there is no model 'smolm2'; did you mean 'smollm2'? (there is iris, smollm2;" in result.err
    assert "did you mean 'iris'?" in both("show", "irsi").err


@pytest.mark.parametrize(
    ("variables", "url"),
    [
        ({}, "http://127.0.0.1:9"),
        ({"OLLAMA_HOST": "0.0.0.0:1234"}, "http://127.0.0.1:1234"),
        ({"OLLAMA_HOST": "https://models.example"}, "https://models.example:443"),
        ({"OLLAMA_HOST": "10.0.0.7"}, "http://10.0.0.7:11434"),
        ({"BIDENT_TEXT_PORT": "77", "OLLAMA_HOST": "elsewhere:1"}, "http://elsewhere:77"),
        ({"BIDENT_TEXT_HOST": "::1"}, "http://[::1]:11434"),
    ],
)
def test_where_the_text_server_is_by_the_environment(
    bident: Bident, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], url: str
) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    assert text_server.default_url() == url


def test_an_address_that_is_none_is_said(bident: Bident, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "ftp://x")
    result = bident("pull", "smollm2")
    assert result.code == 2
    assert "OLLAMA_HOST" in result.err


def test_sizes() -> None:
    counts = (0, 999, 1500, 98_000_000, 4_700_000_000)
    assert [text_models.size(count) for count in counts] == ["0 B", "999 B", "1.5 kB", "98 MB", "4.7 GB"]


def test_a_real_ollama_on_the_port_is_told_from_a_server_of_ours(
    bident: Bident, ollama: FakeOllama, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(ollama.url.rpartition(":")[2])
    monkeypatch.setattr("bident.settings.text.DEFAULT_PORT", port)
    settings = parse_text_args([f"--port={port}"], {})
    assert text_server.stands_by(settings)
    assert not text_server.stands_by(parse_text_args([f"--port={port}", "--upstream=none"], {}))
    plan = background.Plan.of(parse_tensor_args(["--http-port=0", "--grpc-port=0", "--metrics-port=0"], {}), settings)
    background.check_ports(plan)
    assert plan.text_url == ollama.url
    monkeypatch.setattr(FakeOllama, "answer", lambda *_: (200, "application/json", b'{"version": "1", "bident": "1"}'))
    assert not text_server.stands_by(settings)
