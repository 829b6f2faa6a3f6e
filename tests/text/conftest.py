"""What the tests with real text models share."""

from __future__ import annotations

from pathlib import Path

import pytest

from sample_models import smollm2


@pytest.fixture(scope="session")
def smollm2_weights() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct. It must not be written to."""
    return smollm2()
