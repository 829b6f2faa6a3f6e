"""Fixtures of the store's tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from bident.text.store.library import Library
from tests.unit.text.store.file_server import Files, serving


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path / "store")


@pytest.fixture
def web() -> Iterator[Files]:
    with serving() as files:
        yield files


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Runs one coroutine to its end, which must come soon."""
    return lambda work: asyncio.run(asyncio.wait_for(work, 60))
