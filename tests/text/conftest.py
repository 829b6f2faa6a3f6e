"""What the tests with real text models share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sample_models import smollm2
from text_serving import TOOLED, TextServing


@pytest.fixture(scope="session")
def smollm2_weights() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct. It must not be written to."""
    return smollm2()


@pytest.fixture(scope="session")
def serving(smollm2_weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TextServing]:
    """A text server with ``smollm2``, ``tooled`` (the same, with a template for tools) and ``minilm``."""
    folder = tmp_path_factory.mktemp("serving")
    weights = folder / "smollm2.gguf"
    weights.symlink_to(smollm2_weights)
    server = TextServing(folder, files=(weights,))
    try:
        with server.client() as client:
            tooled = {"model": "tooled", "from": "smollm2", "template": TOOLED, "stream": False}
            client.post("/api/create", json=tooled).raise_for_status()
            client.post("/api/pull", json={"model": "minilm", "stream": False}, timeout=300).raise_for_status()
        yield server
    finally:
        server.stop()
