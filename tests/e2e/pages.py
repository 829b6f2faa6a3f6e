"""The pages of docs/how-to, followed as a reader does: models copied, servers started, commands and programs run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from model_folders import write_model
from serving import DEADLINE_SECONDS, eventually

from benchmarks.ports import free_port
from benchmarks.servers import Server, bident_command
from tests import shell

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
_PRINTED = ("{", "data:")
_ADDRESS = re.compile(r"\b(127\.0\.0\.1|localhost):(8000|8001|8002)\b")
_CURL = 'curl() { command curl --silent --show-error --fail-with-body "$@"; }'


@dataclass(frozen=True)
class Section:
    """The blocks of one part of a page: those without a language are configurations, trees and answers."""

    blocks: list[tuple[str, str]]

    def of(self, language: str) -> list[str]:
        return [text for kind, text in self.blocks if kind == language]

    @property
    def config(self) -> str | None:
        return next((text for text in self.of("") if re.match("backend|platform", text)), None)

    @property
    def printed(self) -> str:
        return next(text for text in reversed(self.of("")) if text.startswith(_PRINTED))

    def after(self, start: str) -> str:
        """The block that follows the one that begins with ``start``."""
        at = next(at for at, (_, text) in enumerate(self.blocks) if text.startswith(start))
        return self.blocks[at + 1][1]


def sections(page: str) -> dict[str, Section]:
    """The parts of a page by the first word of their headings; what precedes the first one is ""."""
    parts = re.split(r"^## (.*)$", (PAGES / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
    named = zip(["", *parts[1::2]], parts[::2], strict=True)
    return {re.split(r"\W", title.strip("`"))[0]: Section(shell.BLOCK.findall(text)) for title, text in named}


def typed(command: str, folder: Path | None = None, environment: dict[str, str] | None = None) -> str:
    """What ``command`` prints to somebody who copies it."""
    own = {**os.environ, "no_proxy": "*", "PATH": shell.PATH, **(environment or {})}
    return shell.printed(shell.typed(f"{_CURL}\n{command}", folder, own, DEADLINE_SECONDS)).strip()


def write_words(repository: Path) -> None:
    """The decoupled model of the examples, which other pages ask."""
    section = sections("python-examples.md")["words"]
    (source,) = section.of("python")
    write_model(repository, "words", section.config, model_py=source)


class Reader:
    """Follows a page in a folder, where ``models`` is the repository, with a server as the page starts it."""

    def __init__(self, folder: Path, iris: Path | None = None) -> None:
        """``iris``: the folder of the sample model that most pages ask, to be copied into the repository."""
        self.folder = folder
        self.models = folder / "models"
        self.models.mkdir()
        if iris:
            shutil.copytree(iris, self.models / iris.name)
        self._ports = {"8000": free_port(), "8001": free_port(), "8002": free_port()}
        self._log = folder / "server.log"

    def starts(self, command: str) -> Server:
        """A server, to be entered, that is the page's ``command`` but for its ports."""
        assert command.startswith("bident serve tensor --model-repository models")
        doors = zip(("http", "grpc", "metrics"), self._ports.values(), strict=True)
        flags = " ".join(f"--{door}-port={port}" for door, port in doors)
        line = f"cd {shlex.quote(str(self.folder))} && exec {bident_command().parent}/{command.strip()} {flags}"
        return _Started(["bash", "-c", line], self._ports["8000"], self._log, ready_path=None)

    def types(self, command: str) -> str:
        """What ``command`` prints, asked of this reader's server."""
        return typed(self._here(command), self.folder)

    def runs(self, program: str) -> str:
        """What the Python ``program`` prints, asked of this reader's server."""
        (self.folder / "program.py").write_text(self._here(program), encoding="utf-8")
        return self.types(f"{shlex.quote(sys.executable)} program.py")

    def address(self, port: str) -> str:
        """Where this reader's server listens in place of the page's ``port``."""
        return f"127.0.0.1:{self._ports[port]}"

    @property
    def log_text(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def _here(self, text: str) -> str:
        return _ADDRESS.sub(lambda found: f"{found[1]}:{self._ports[found[2]]}", text)


class _Started(Server):
    """Waits for what the log says: a server over TLS, or with keys, does not tell everybody that it is ready."""

    def wait_ready(self) -> None:
        def is_up() -> bool:
            self.check_alive()
            return "model versions ready after" in self.log.read_text(errors="replace")

        eventually(is_up, "ready, by its log")
