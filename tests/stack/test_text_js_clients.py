"""The text server with npm's ``ollama`` and ``openai``, unmodified."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.text.sample_models import smollm2
from tests.text.text_serving import TextServing

pytestmark = pytest.mark.timeout(300)
SCRIPT = Path(__file__).with_name("text_js_clients.mjs")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TextServing]:
    folder = tmp_path_factory.mktemp("serving")
    weights = folder / "smollm2.gguf"
    weights.symlink_to(smollm2())
    serving = TextServing(folder, files=(weights,))
    yield serving
    serving.stop()


@pytest.fixture(scope="module")
def said(server: TextServing, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What both clients were answered."""
    folder = tmp_path_factory.mktemp("npm")
    (folder / "package.json").write_text("{}")
    install = ["npm", "install", "--no-audit", "--no-fund", "--silent", "ollama@0.6", "openai@6"]
    subprocess.run(install, cwd=folder, check=True, timeout=200)
    (folder / SCRIPT.name).write_text(SCRIPT.read_text())
    command = ["node", SCRIPT.name, server.url]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


def test_ollama(said: dict[str, Any]) -> None:
    assert said["list"] == ["smollm2:latest"]
    assert "completion" in said["show"]
    assert said["chat"]
    assert said["chat"] == said["chatStream"]
    assert said["generate"] == "length"
    assert said["unknown"] == ["ResponseError", "model 'nobody' not found"]


def test_openai(said: dict[str, Any]) -> None:
    assert said["completion"] == said["completionStream"]
    assert said["tokens"] == 4
    assert said["models"] == ["smollm2:latest"]
    assert said["response"]
    assert said["refused"] == [404, "not_found_error"]
