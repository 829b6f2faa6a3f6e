"""docs/how-to/neighbours.md, typed as a reader does; LangChain really asks, by the program that was written for it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from text_serving import TextServing

# Installing takes a minute.
pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "neighbours.md").read_text(encoding="utf-8")
COMMANDS = [text for kind, text in re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE) if kind == "sh"]


@pytest.fixture(scope="module")
def clients() -> Path:
    """Where the programs of ``make text-clients`` are; it is made if it is not there or its packages have changed."""
    command = ["make", "text-clients", f"PYTHON={sys.executable}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / ".venvs" / "text_clients" / "bin"


def test_the_page(serving: TextServing, clients: Path, tmp_path: Path) -> None:
    first, openwebui, continue_dev, langchain = COMMANDS
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OLLAMA_", "BIDENT_"))}
    # This `bident` for the commands, that `python` for the program they write.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bident").symlink_to(Path(sys.executable).with_name("bident"))
    path = os.pathsep.join((str(tmp_path / "bin"), str(clients), os.environ["PATH"]))
    own = {"PATH": path, "HOME": str(tmp_path), "BIDENT_TEXT_URL": serving.url, "BIDENT_URL": "http://127.0.0.1:9"}

    def types(command: str) -> str:
        done = subprocess.run(
            ["bash", "-ec", command],
            cwd=tmp_path,
            env={**kept, **own, "no_proxy": "*"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    said = types(first)
    assert "vectors of 384 numbers" in said
    types(openwebui)
    assert f"OLLAMA_BASE_URL={serving.url}\n" in (tmp_path / "openwebui.env").read_text(encoding="utf-8")
    types(continue_dev)
    config = yaml.safe_load((tmp_path / ".continue" / "config.yaml").read_text(encoding="utf-8"))
    assert {model["model"] for model in config["models"]} == {"smollm2:latest", "tooled:latest", "minilm:latest"}
    answer, nearness = types(langchain).strip().rsplit("\n", 1)
    assert answer
    assert 0.5 < float(nearness.removeprefix("nearness ")) < 1
