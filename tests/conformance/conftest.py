"""The servers of the conformance tests: started once, for all cases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from judged_memory import make_region, remove_region
from judged_servers import Court, hold_court


@pytest.fixture(scope="session")
def court(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Court]:
    """A real Triton, and Bident with and without --triton-compat."""
    with ExitStack() as stack:
        make_region()
        stack.callback(remove_region)
        yield hold_court(stack, tmp_path_factory.mktemp("court"))
