"""Tests with clients that pip does not install: Debian's curl and h2load, npm's grpc-js.

``make test-stack`` runs them; a run of all tests leaves them out, so that none is ever skipped.
"""

from __future__ import annotations

from pathlib import Path

import pytest

_HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collect what is here only where it was asked for by its path."""
    asked = [Path(argument.partition("::")[0]).resolve() for argument in config.invocation_params.args]
    return None if any(path == _HERE or _HERE in path.parents for path in asked) else True
