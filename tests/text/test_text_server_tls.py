"""The text server over TLS: who speaks it gets answers, streams too; who does not is told; commands reach it."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from text_serving import TextServing

from certificates import AUTHORITY, certificate, key

TLS = ("--use-ssl=true", f"--server-cert={certificate('server')}", f"--server-key={key('server')}")
MUTUAL = ("--use-ssl-mutual=true", f"--root-cert={AUTHORITY}", *TLS)
ASKED = {"model": "smollm2", "prompt": "Hi", "options": {"num_predict": 3}}


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory, smollm2_weights: Path) -> Iterator[TextServing]:
    folder = tmp_path_factory.mktemp("encrypted")
    weights = folder / "smollm2.gguf"
    weights.symlink_to(smollm2_weights)
    server = TextServing(folder, *TLS, files=(weights,))
    yield server
    server.stop()


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=AUTHORITY)


def test_answers_and_streams(encrypted: TextServing) -> None:
    with httpx.Client(base_url=encrypted.url, verify=trusting(), trust_env=False, timeout=60) as client:
        assert client.get("/").text == "Ollama is running"
        *_, last = [json.loads(line) for line in client.post("/api/generate", json=ASKED).text.splitlines()]
        assert last["done"] is True
        chat = {"model": "smollm2", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
        assert client.post("/v1/chat/completions", json=chat).json()["choices"]


def test_a_client_that_goes_is_noticed(encrypted: TextServing) -> None:
    long = {**ASKED, "raw": True, "options": {"num_predict": 3000, "temperature": 0}}
    with httpx.Client(base_url=encrypted.url, verify=trusting(), trust_env=False, timeout=60) as client:
        for _ in range(5):  # one more than there are slots
            with client.stream("POST", "/api/generate", json=long) as answer:
                next(answer.iter_lines())
        assert client.post("/api/generate", json={**ASKED, "stream": False}).json()["done"]


def test_plain_http_gets_an_answer_that_says_https(encrypted: TextServing) -> None:
    answer = httpx.get(f"http://127.0.0.1:{encrypted.port}/api/tags", trust_env=False)
    assert (answer.status_code, "use https://" in answer.json()["error"]) == (400, True)


def test_who_says_nothing_keeps_nobody_from_being_served(encrypted: TextServing) -> None:
    with (
        socket.create_connection(("127.0.0.1", encrypted.port)),
        socket.create_connection(("127.0.0.1", encrypted.port)) as garbage,
    ):
        garbage.sendall(b"\x16garbage")
        with httpx.Client(verify=trusting(), trust_env=False) as client:
            assert client.get(f"{encrypted.url}/api/version").status_code == 200
    assert "Traceback" not in encrypted.said()


def test_commands_reach_it(encrypted: TextServing) -> None:
    command = [sys.executable, "-m", "bident", "--ca", AUTHORITY, "ls", "--text-url", encrypted.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, "smollm2" in done.stdout) == (0, True), done.stderr
    strangers = subprocess.run([*command[:3], *command[5:]], capture_output=True, text=True, timeout=30, check=False)
    assert strangers.returncode != 0
    assert "--ca" in strangers.stderr


def test_clients_without_a_certificate_are_turned_away_where_one_is_wanted(tmp_path: Path) -> None:
    server = TextServing(tmp_path, *MUTUAL)
    try:
        known = trusting()
        known.load_cert_chain(certificate("client"), key("client"))
        with httpx.Client(verify=known, trust_env=False) as client:
            assert client.get(f"{server.url}/api/version").status_code == 200
        with httpx.Client(verify=trusting(), trust_env=False) as client, pytest.raises(httpx.TransportError):
            client.get(f"{server.url}/api/version")
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--use-ssl=true",), "--use-ssl needs --server-cert and --server-key too"),
        (("--server-cert=a.pem",), "without --use-ssl=true"),
        (("--use-ssl=true", "--server-cert=/nowhere.pem", "--server-key=/nowhere.key"), "/nowhere.pem"),
        ((*TLS[:2], f"--server-key={key('client')}"), "does not belong to the certificate"),
    ],
)
def test_files_that_cannot_be_used_are_named(flags: tuple[str, ...], said: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bident", "serve", "text", "--port=0", "--upstream=none", *flags]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_bident_up_reaches_its_own(tmp_path: Path) -> None:
    """``up`` waits until both answer, and believes the certificate that it has started the server with."""
    (tmp_path / "model_repository").mkdir()
    shutil.copy(certificate("server"), tmp_path / "cert.pem")
    flags = [f"--text-{flag.removeprefix('--')}" for flag in (TLS[0], "--server-cert=cert.pem", TLS[2])]
    places = ["--http-port=0", "--grpc-port=0", "--metrics-port=0", "--text-port=0", "--text-upstream=none"]

    def bident(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "bident", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    up = bident("up", *places, *flags)
    try:
        assert up.returncode == 0, up.stderr + up.stdout
        listed = bident("ls")
        assert (listed.returncode, listed.stderr) == (0, "")
        assert "https://127.0.0.1" in bident("status").stdout
    finally:
        bident("down")
