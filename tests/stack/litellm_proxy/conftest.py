"""What the tests with LiteLLM share."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.servers import bident_command
from tests.shell import made


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with ``iris_sklearn`` and ``text_classifier``, to be copied; LiteLLM is installed beside it."""
    made("litellm")
    folder = tmp_path_factory.mktemp("samples")
    build = [bident_command(), "zoo", "build", "iris_sklearn", "text_classifier", "--into", folder]
    subprocess.run(build, check=True, capture_output=True, timeout=120)
    return folder
