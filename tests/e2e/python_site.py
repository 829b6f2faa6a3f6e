"""A server with Python models, to which a test may add others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from asking import Answer, Asker, tensor
from python_repository import DECOUPLED, one_instance, write_script
from serving import TensorServer, eventually


class PythonSite:
    """The server, its repository, and a client."""

    def __init__(self, server: TensorServer, repository: Path) -> None:
        self.server = server
        self.repository = repository
        self.ask = Asker(server.port)

    def run(self, code: str, model: str = "one", **rest: Any) -> Answer:
        """Have a script model run ``code``."""
        return self.ask.infer(model, tensor("CODE", "BYTES", [1], [code]), **rest)

    def value(self, code: str, model: str = "one", **rest: Any) -> Any:
        """The ``answer`` that ``code`` sets."""
        return json.loads(self.run(code, model, **rest).data("ANSWER")[0])

    def offer(self, name: str, more: str = "", **values: str) -> Answer:
        """Add a script model (see ``write_script``) and ask the server to load it."""
        write_script(self.repository, name, more, **values)
        return self.ask.load(name)

    def pid(self, model: str = "one") -> int:
        return int(self.value("answer = os.getpid()", model))

    def is_ready(self, model: str) -> bool:
        return self.ask.get(f"/v2/models/{model}/ready").status == 200

    def wait_ready(self, model: str) -> None:
        eventually(lambda: self.is_ready(model), f"{model} is ready")

    @property
    def page(self) -> str:
        return httpx.get(f"http://127.0.0.1:{self.server.metrics_port}/metrics", trust_env=False).text

    def sample(self, series: str) -> float:
        """The value of one series; KeyError when the page does not have it."""
        lines = dict(line.rsplit(" ", 1) for line in self.page.splitlines() if not line.startswith("#"))
        return float(lines[series])

    def pending(self, model: str) -> int:
        return int(self.sample(f'nv_inference_pending_request_count{{model="{model}",version="1"}}'))

    def failures(self, model: str, reason: str) -> int:
        return int(self.sample(f'nv_inference_request_failure{{model="{model}",reason="{reason}",version="1"}}'))


@contextmanager
def python_site(base: Path, plugins: Path) -> Iterator[PythonSite]:
    """A site in explicit mode and the C locale with the script models ``one``, ``other``, ``two`` and ``streams``."""
    repository = base / "repository"
    write_script(repository, "one")
    write_script(repository, "other")
    write_script(repository, "two", one_instance(2))
    write_script(repository, "streams", DECOUPLED)
    server = TensorServer(
        repository,
        base / "server.log",
        "--model-control-mode=explicit",
        "--load-model=*",
        "--strict-readiness=false",  # tests load models that must fail
        plugins=plugins,
        environment={"LC_ALL": "C", "LANG": "C"},
    )
    with server:
        site = PythonSite(server, repository)
        yield site
        site.ask.close()
