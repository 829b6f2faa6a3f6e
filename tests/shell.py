"""Somebody who reads a page and types what it says, with this environment's ``bident``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from benchmarks.servers import bident_command

_SETTINGS = ("BIDENT_", "OLLAMA_", "LITELLM_", "LANGFUSE_", "OTEL_", "RAG_")
_INSTALLING_SECONDS = 800.0
_ROOT = Path(__file__).parents[1]

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
"""Language and text of a block."""
SECONDS = 100.0
"""How long a command may take, if nothing else is said."""
PATH = f"{bident_command().parent}{os.pathsep}{os.environ['PATH']}"
"""Where commands are looked for: ``bident`` and ``python`` are those of the tests."""


def blocks(page: Path, language: str | None = None) -> list[tuple[str, str]]:
    """Language and text of every block of ``page``, or of those in ``language``."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [each for each in found if language in (None, each[0])]


def scripts(page: Path) -> list[str]:
    """The blocks that a reader types."""
    return [text for _, text in blocks(page, "sh")]


def own_environment(**added: str) -> dict[str, str]:
    """This process's, without what a person has set for these programs, and with ``added``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS)}
    return {**kept, "PATH": PATH, "no_proxy": "*", **added}


def typed(
    command: str, folder: Path | None, environment: dict[str, str], seconds: float = SECONDS
) -> subprocess.CompletedProcess[str]:
    """``command``, of one or more lines, run in ``folder`` up to the first line that fails."""
    return subprocess.run(
        ["bash", "-ec", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def made(target: str) -> Path:
    """The environment of ``make target``, in .venvs; made if it is not there or its packages have changed."""
    command = ["make", target, f"PYTHON={sys.executable}"]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=_INSTALLING_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return _ROOT / ".venvs" / target.replace("-", "_")


def printed(done: subprocess.CompletedProcess[str]) -> str:
    """What a command that worked has printed."""
    assert done.returncode == 0, (done.args, done.stdout, done.stderr)
    return done.stdout
