"""docs/how-to/neighbours.md, typed as a reader does; LangChain really asks, by the program that was written for it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import yaml
from text_serving import TextServing

from tests.shell import made, own_environment, printed, scripts, typed

# Installing takes a minute.
pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "neighbours.md"


@pytest.fixture(scope="module")
def clients() -> Path:
    """Where the programs of ``make text-clients`` are."""
    return made("text-clients") / "bin"


def test_the_page(serving: TextServing, clients: Path, tmp_path: Path) -> None:
    first, openwebui, continue_dev, langchain = scripts(PAGE)
    # This `bident` for the commands, that `python` for the program they write.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bident").symlink_to(Path(sys.executable).with_name("bident"))
    path = os.pathsep.join((str(tmp_path / "bin"), str(clients), os.environ["PATH"]))
    own = own_environment(PATH=path, HOME=str(tmp_path), BIDENT_TEXT_URL=serving.url, BIDENT_URL="http://127.0.0.1:9")

    def types(command: str) -> str:
        return printed(typed(command, tmp_path, own, 200))

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
