"""The text server's settings: their sources, Ollama's variables, and addresses in every form."""

from __future__ import annotations

from pathlib import Path

import pytest

from bident.errors import SettingsError
from bident.settings import TEXT_TABLE, TextSettings, parse_text_args
from bident.settings.addresses import Address, Upstream


def parse(*argv: str, **environ: str) -> TextSettings:
    return parse_text_args([*argv], environ)


def test_defaults() -> None:
    settings = parse()
    assert (settings.host, settings.port, settings.keep_alive) == (Address("127.0.0.1"), 11434, "5m")
    assert settings.upstream == (Upstream("auto"),)


def test_names_are_unique_and_variables_ours() -> None:
    assert len({row.flag for row in TEXT_TABLE}) == len({row.name for row in TEXT_TABLE}) == len(TEXT_TABLE)
    assert all(row.environment.startswith("BIDENT_TEXT_") for row in TEXT_TABLE)


@pytest.mark.parametrize(
    ("given", "host", "port"),
    [
        ("127.0.0.1", "127.0.0.1", 11434),
        ("localhost:80", "localhost", 80),
        (":8080", "127.0.0.1", 8080),
        ("http://127.0.0.1", "127.0.0.1", 80),
        ("https://localhost", "localhost", 443),
        ("http://127.0.0.1:11434/", "127.0.0.1", 11434),
        ("[::1]:99", "::1", 99),
        ("::1", "::1", 11434),
        (' "127.0.0.1:7" ', "127.0.0.1", 7),
    ],
)
def test_ollama_host(given: str, host: str, port: int) -> None:
    settings = parse(OLLAMA_HOST=given)
    assert (settings.host.host, settings.port) == (host, port)


@pytest.mark.parametrize("given", ["ftp://x", "a b", "localhost:99999", "localhost:x", "user@localhost", "[::1"])
def test_hosts_that_are_none(given: str) -> None:
    with pytest.raises(SettingsError, match="OLLAMA_HOST"):
        parse(OLLAMA_HOST=given)


def test_our_own_variable_goes_before_ollamas_and_a_flag_before_both(tmp_path: Path) -> None:
    path = tmp_path / "bident.toml"
    path.write_text('[text]\nkeep-alive = "1s"\nmax-queue = 3\n[tensor]\nhttp-port = 1\n')
    environ = {"OLLAMA_KEEP_ALIVE": "2s"}
    assert parse_text_args([], {}, path).keep_alive == "1s"
    assert parse_text_args([], environ, path).keep_alive == "2s"
    environ["BIDENT_TEXT_KEEP_ALIVE"] = "3s"
    assert parse_text_args([], environ, path).keep_alive == "3s"
    settings = parse_text_args(["--keep-alive=4s"], environ, path)
    assert (settings.keep_alive, settings.max_queue) == ("4s", 3)


def test_the_port_goes_before_the_one_in_the_host() -> None:
    assert parse("--port=0", OLLAMA_HOST="localhost:80").port == 0


def test_ollamas_variables() -> None:
    settings = parse(
        OLLAMA_NUM_PARALLEL="2",
        OLLAMA_MAX_LOADED_MODELS="1",
        OLLAMA_MAX_QUEUE="9",
        OLLAMA_CONTEXT_LENGTH="8192",
        OLLAMA_LOAD_TIMEOUT="1m",
        OLLAMA_FLASH_ATTENTION="1",
        OLLAMA_KV_CACHE_TYPE="q8_0",
        OLLAMA_ORIGINS="http://a.example, http://*.b.example/",
        OLLAMA_NOPRUNE="true",
    )
    assert (settings.num_parallel, settings.max_loaded_models, settings.max_queue) == (2, 1, 9)
    assert (settings.context_length, settings.load_timeout, settings.flash_attention) == (8192, "1m", True)
    assert (settings.kv_cache_type, settings.noprune) == ("q8_0", True)
    assert settings.origins == ("http://a.example", "http://*.b.example")


def test_a_wrong_value_is_named_by_the_variable_it_came_from() -> None:
    with pytest.raises(SettingsError, match=r"OLLAMA_MAX_QUEUE.*many"):
        parse(OLLAMA_MAX_QUEUE="many")


def test_strangers_are_kept_out_unless_told_otherwise() -> None:
    with pytest.raises(SettingsError, match=r"--host=0\.0\.0\.0.*--api-key-file.*--insecure"):
        parse("--host=0.0.0.0")
    assert parse("--host=0.0.0.0", "--insecure").host.host == "0.0.0.0"
    assert parse("--host=0.0.0.0", "--api-key-file=keys").api_key_file == "keys"


def test_upstreams() -> None:
    named = "gpt=openai:https://llm.example/v1/"
    assert parse("--upstream", named).upstream == (
        Upstream("openai", "https://llm.example/v1", "gpt"),
        Upstream("auto"),
    )
    assert parse("--upstream=none", "--upstream", "ollama:http://h:1").upstream == (Upstream("ollama", "http://h:1"),)
    given = parse(BIDENT_TEXT_UPSTREAM="m=ollama:http://h:1;none").upstream
    assert given == (Upstream("ollama", "http://h:1", "m"), Upstream("none"))
    assert [str(each) for each in given] == ["m=ollama:http://h:1", "none"]


@pytest.mark.parametrize(
    "given", ["x", "ollama", "ollama:h", "openai:ftp://h", "=none", "m=auto", "openai:http://", "openai:http://h:0"]
)
def test_upstreams_that_are_none(given: str) -> None:
    with pytest.raises(SettingsError, match="upstream"):
        parse("--upstream", given)


def test_every_key_of_the_file_works(tmp_path: Path) -> None:
    path = tmp_path / "bident.toml"
    path.write_text("[text]\nports = 1\n")
    with pytest.raises(SettingsError, match=r"unknown setting 'ports' in \[text\]; did you mean 'port'"):
        parse_text_args([], {}, path)
