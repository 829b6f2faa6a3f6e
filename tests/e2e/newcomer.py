"""Somebody who types what a page says, in an empty folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

from benchmarks.ports import free_port
from tests.shell import PATH, SECONDS, printed, typed

_PORTS = {
    "8000": "BIDENT_HTTP_PORT",
    "8001": "BIDENT_GRPC_PORT",
    "8002": "BIDENT_METRICS_PORT",
    "11434": "BIDENT_TEXT_PORT",
}


def commands(block: str) -> list[str]:
    """The commands of a block: lines joined at backslashes, comments cut off."""
    lines = re.sub(r"\\\n\s*", "", block).splitlines()
    return [command for line in lines if (command := re.sub(r"\s+#.*", "", line).strip())]


class Newcomer:
    """A shell in an empty folder, with ports of its own in place of the well-known ones."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ports = {port: str(free_port()) for port in _PORTS}
        self._environment = {
            **os.environ,
            **{variable: self._ports[port] for port, variable in _PORTS.items()},
            "PATH": PATH,
            "BIDENT_TEXT_MODELS": str(folder / "text_models"),
            "BIDENT_TEXT_CONTEXT_LENGTH": "512",  # a small model may ramble on until its context is full
        }

    def here(self, text: str) -> str:
        """``text`` with this newcomer's ports."""
        return re.sub(r"127\.0\.0\.1:(\d+)", lambda found: f"127.0.0.1:{self._ports.get(found[1], found[1])}", text)

    def types(self, command: str, seconds: float = SECONDS) -> str:
        """Run ``command`` as the page has it, but for the ports; its output."""
        return printed(typed(self.here(command), self.folder, self._environment, seconds))
