"""Both servers with samples and models for LiteLLM, and real LiteLLM proxies before them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from benchmarks.ports import free_port
from benchmarks.servers import Server, bident_command
from tests import shell
from tests.e2e.serving import eventually
from tests.text.real_library import pulled
from tests.text.sample_models import smollm2
from tests.text.text_serving import TOOLED

ROOT = Path(__file__).parents[3]
LITELLM = ROOT / ".venvs" / "litellm" / "bin"
MASTER_KEY = "sk-of-the-gateway"
_MODELS = Path(__file__).with_name("models")
_LONG = 120.0


def own_environment(folder: Path) -> dict[str, str]:
    """Nothing that a person has set for these programs, and nothing that lies in that person's home."""
    return shell.own_environment(HOME=str(folder), OLLAMA_MODELS=str(folder / "nobodys"))


class Servers(Server):
    """``bident serve`` with smollm2, minilm, tooled, iris_sklearn, text_classifier and the models beside this file.

    ``samples``: a repository with the first two of the tensor models. ``key``: what both servers want to be shown;
    empty for nothing. Every text model answers one request at a time and lets one wait.
    """

    def __init__(self, folder: Path, samples: Path, key: str = "") -> None:
        self.folder = folder
        self.key = key
        self.repository = folder / "repository"
        for models in (samples, _MODELS):
            shutil.copytree(models, self.repository, dirs_exist_ok=True)
        port, self.text_port = free_port(), free_port()
        self.text_url = f"http://127.0.0.1:{self.text_port}"
        ports = {"http": port, "grpc": free_port(), "metrics": free_port(), "text": self.text_port}
        command = [bident_command(), "serve", f"--model-repository={self.repository}", "--text-upstream=none"]
        command += [f"--{door}-port={number}" for door, number in ports.items()]
        command += [f"--text-models={folder / 'store'}", "--text-num-parallel=1", "--text-max-queue=1"]
        command += [f"--text-library={path}" for path in self._weights()]
        super().__init__([*command, *self._key_flags()], port, folder / "serve.log")
        self._environment = own_environment(folder)

    def wait_ready(self) -> None:
        super().wait_ready()
        eventually(self._text_answers, "the text server answers")
        with self.text() as text:
            tooled = {"model": "tooled", "from": "smollm2", "template": TOOLED, "stream": False}
            text.post("/api/create", json=tooled).raise_for_status()

    def text(self) -> httpx.Client:
        """A client of the text server."""
        return client(self.text_url, self.key)

    def unload(self, *models: str) -> None:
        """Take ``models`` out of memory."""
        with self.text() as text:
            for model in models:
                body = {"model": model, "keep_alive": 0, "stream": False}
                text.post("/api/generate", json=body).raise_for_status()

    def last_loaded(self) -> int:
        """The id of the process in which a text model was loaded last."""
        return int(re.findall(r"loaded model .*: process (\d+),", self.log.read_text())[-1])

    def bident(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """What ``bident`` says to somebody who means these servers; ``environment`` is added."""
        theirs = {"BIDENT_URL": self.url(""), "BIDENT_TEXT_URL": self.text_url, "BIDENT_API_KEY": self.key}
        return subprocess.run(
            [bident_command(), *words],
            cwd=self.folder,
            env={**own_environment(self.folder), **theirs, **environment},
            capture_output=True,
            text=True,
            timeout=_LONG,
            check=False,
        )

    def _text_answers(self) -> bool:
        self.check_alive()
        try:
            return httpx.get(self.text_url, trust_env=False).is_success
        except httpx.TransportError:
            return False

    def _weights(self) -> Iterator[Path]:
        for name, weights in (("smollm2", smollm2()), ("minilm", pulled("minilm").weights)):
            link = self.folder / f"{name}.gguf"
            link.symlink_to(weights)
            yield link

    def _key_flags(self) -> list[str]:
        if not self.key:
            return []
        keys = self.folder / "keys"
        keys.write_text(self.key)
        keys.chmod(0o600)
        return [f"--api-key-file={keys}", f"--text-api-key-file={keys}"]


class Proxy(Server):
    """LiteLLM's proxy with the configuration ``config``; ``environment`` is added to what it needs."""

    def __init__(self, config: Path, log: Path, **environment: str) -> None:
        port = free_port()
        command = [LITELLM / "litellm", "--config", config, "--host", "127.0.0.1", "--port", port]
        super().__init__(command, port, log, ready_path="/health/liveliness", deadline_seconds=90)
        keys = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MASTER_KEY": MASTER_KEY}
        self._environment = {**own_environment(log.parent), **keys, **environment}

    def client(self) -> httpx.Client:
        return client(self.url(""), MASTER_KEY)


@contextmanager
def started(*proxies: Proxy) -> Iterator[None]:
    """All of them at once, each ready; stopped at the end."""
    with ExitStack() as stack:
        for proxy in proxies:
            proxy.start()
            stack.callback(proxy.stop, 5.0)
        for proxy in proxies:
            proxy.wait_ready()
        yield


def written(servers: Servers, folder: Path, *settings: str) -> Path:
    """The configuration as ``bident connect`` writes it."""
    words = [word for setting in settings for word in ("--set", setting)]
    done = servers.bident("connect", "litellm", *words, "--write", str(folder))
    assert done.returncode == 0, done.stderr
    return folder / "config.yaml"


def with_more_routes(printed: Path, servers: Servers) -> Path:
    """``printed`` with what people may write themselves: other routes, models that are not."""
    config = yaml.safe_load(printed.read_text(encoding="utf-8"))
    text = {"api_base": servers.text_url, "api_key": servers.key}
    routes: dict[str, dict[str, Any]] = {
        "nobody": {"model": "openai/nobody", **text, "api_base": f"{servers.text_url}/v1"},
        "nobody-ollama": {"model": "ollama_chat/nobody", **text},
        "generate": {"model": "ollama/smollm2", **text},
        "wrong-base": {"model": "ollama_chat/smollm2", **text, "api_base": f"{servers.text_url}/v1"},
    }
    for name, parameters in routes.items():
        config["model_list"].append({"model_name": name, "litellm_params": parameters})
    path = printed.with_name("more.yaml")
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def client(url: str, key: str) -> httpx.Client:
    """A client of ``url`` that shows ``key``, if it is not empty."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.Client(base_url=url, headers=headers, timeout=_LONG, trust_env=False)
