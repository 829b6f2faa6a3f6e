"""docs/how-to/litellm.md, typed as a reader does, on servers that want no key; and LiteLLM's provider for Triton."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from litellm_site import LITELLM, ROOT, Servers, client, own_environment

from benchmarks.ports import free_port
from benchmarks.servers import Server, bident_command
from tests import shell

# Installing takes a minute.
pytestmark = pytest.mark.timeout(900)

PAGE = ROOT / "docs" / "how-to" / "litellm.md"
WRITE, START, CHECK, CHAT, TENSOR = shell.scripts(PAGE)
INSTALL, PROGRAM, PROVIDER, ENSEMBLE = (
    shell.blocks(PAGE, language)[0][1] for language in ("text", "python", "yaml", "")
)
KEY = re.findall("LITELLM_MASTER_KEY=(.*)", START)[0]


class Reader:
    """Types what the page says, with the ports of the test in place of the page's."""

    def __init__(self, servers: Servers) -> None:
        self.folder = servers.folder
        self.port = free_port()
        self._servers = servers
        (self.folder / "litellm").symlink_to(LITELLM.parent)
        self.environment = {
            **own_environment(self.folder),
            "PATH": f"{bident_command().parent}:/usr/bin:/bin",
            "BIDENT_URL": servers.url(""),
            "BIDENT_TEXT_URL": servers.text_url,
            "LITELLM_MASTER_KEY": KEY,
        }

    def here(self, text: str) -> str:
        """``text`` with the ports of this test."""
        text = text.replace("4000", str(self.port)).replace("127.0.0.1:8000", f"127.0.0.1:{self._servers.port}")
        return text.replace("litellm --check", f"litellm --check --set proxy=http://127.0.0.1:{self.port}")

    def types(self, command: str) -> str:
        """What ``command`` prints."""
        command = self.here(command).replace("curl ", "curl --silent --show-error --fail-with-body ")
        return shell.printed(shell.typed(command, self.folder, self.environment))

    def starts(self, command: str) -> Server:
        """The server of ``command``, to be entered."""
        line = self.here(command).replace("\nLITELLM_", "\nexec env LITELLM_")
        bash = ["bash", "-c", f"cd {self.folder}\n{line}"]
        log = self.folder / "litellm.log"
        ready = "/health/liveliness"
        return Server(bash, self.port, log, ready_path=ready, environment=self.environment, deadline_seconds=90)


@pytest.fixture(scope="module")
def reader(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """Before whom LiteLLM runs, as the page has it up to there."""
    servers = Servers(tmp_path_factory.mktemp("howto"), samples)
    (servers.repository / "renamed" / "1").mkdir(parents=True)
    (servers.repository / "renamed" / "config.pbtxt").write_text(ENSEMBLE, encoding="utf-8")
    with servers:
        made = Reader(servers)
        made.types(WRITE)
        config = made.folder / "config.yaml"
        head, models, rest = re.split(r"^(model_list:\n)", config.read_text(encoding="utf-8"), flags=re.MULTILINE)
        asked = 'model_name: "asked"\n    litellm_params:\n      model: "triton/asked"\n      api_base: '
        asked += f'"{servers.url("/v2/models/asked/infer")}"\n'
        provider = made.here(PROVIDER)
        config.write_text(f"{head}{models}{provider}  - {asked}{rest}", encoding="utf-8")
        with made.starts(START):
            yield made


def test_the_page(reader: Reader) -> None:
    assert [line.split()[0] for line in reader.types(CHECK).splitlines()] == ["ok"] * 9
    assert "Paris" in json.loads(reader.types(CHAT))["choices"][0]["message"]["content"]
    assert json.loads(reader.types(TENSOR))["outputs"][0]["data"] == [0]
    (reader.folder / "program.py").write_text(reader.here(PROGRAM), encoding="utf-8")
    assert reader.types(f"{sys.executable} program.py") == "[[0]]\n"


def test_what_is_installed_is_what_is_tested(reader: Reader) -> None:
    (release,) = re.findall(r"litellm\[proxy\]==(\S+)'", INSTALL)
    assert f"\nlitellm=={release}\n" in (ROOT / "requirements" / "litellm.lock").read_text(encoding="utf-8")
    said = subprocess.run(
        [bident_command(), "connect", "litellm"],
        env=reader.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert f"'litellm[proxy]=={release}'" in said.stderr


@pytest.fixture
def proxy(reader: Reader) -> Iterator[httpx.Client]:
    with client(f"http://127.0.0.1:{reader.port}", KEY) as made:
        yield made


def say(proxy: httpx.Client, model: str, **more: object) -> httpx.Response:
    message = {"role": "user", "content": "one two three four"}
    return proxy.post("/v1/chat/completions", json={"model": model, "messages": [message], **more}).raise_for_status()


@pytest.mark.parametrize("model", ["teller", "asked"])
def test_chats_of_the_triton_provider(proxy: httpx.Client, model: str) -> None:
    for limit, expected in (({"max_tokens": 3}, "one two three"), ({}, "one two three four")):
        answer = say(proxy, model, temperature=0, **limit).json()
        assert answer["choices"][0]["message"]["content"] == expected


def test_streams_of_the_triton_provider(proxy: httpx.Client) -> None:
    lines = say(proxy, "teller", max_tokens=3, stream=True).text.split("\n\n")
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert [text for each in chunks if (text := each["choices"][0]["delta"].get("content"))] == [
        "one ",
        "two ",
        "three ",
    ]


def test_embeddings_of_the_triton_provider(proxy: httpx.Client) -> None:
    """Two texts, one of them empty, one with a line end, by the ensemble; and what cannot be read is refused."""
    answer = proxy.post("/v1/embeddings", json={"model": "renamed", "input": ["", "a b\nc"]}).json()
    assert [each["embedding"] for each in answer["data"]] == [[0, 0, 0, 0.5], [5, 1, 1, 0.5]]
    alone = proxy.post("/v1/embeddings", json={"model": "renamed", "input": "a text alone"})
    assert (alone.status_code, "send an array" in alone.text) == (400, True), alone.text
