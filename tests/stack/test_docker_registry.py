"""Text models go to Docker's own registry and come back as they were."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from bident.text.store.library import Library
from tests.unit.text.store.stores import make, statuses

_CONFIG = """
version: 0.1
storage:
  filesystem: {{rootdirectory: "{root}"}}
http: {{addr: "127.0.0.1:{port}"}}
"""


@pytest.fixture
def registry(tmp_path):
    """The address of a registry that is started for the test."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = tmp_path / "registry.yml"
    config.write_text(_CONFIG.format(root=tmp_path / "registry", port=port))
    with (tmp_path / "registry.log").open("wb") as log:
        process = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=log, stderr=log)
    try:
        _wait_for(f"http://127.0.0.1:{port}/v2/", tmp_path / "registry.log")
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _wait_for(url: str, log: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            httpx.get(url).raise_for_status()
            return
        except httpx.HTTPError:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)


def test_there_and_back(registry, tmp_path):
    name = f"{registry}/me/pirate:v1"

    async def story():
        here, there = Library(tmp_path / "here"), Library(tmp_path / "there")
        await make(here, "base", system="Arr.", parameters={"top_k": 3}, licenses=["MIT"])
        await here.copy("base", name)
        assert (await statuses(here.push(name)))[-1] == {"status": "success"}
        assert (await statuses(here.push(name)))[-1] == {"status": "success"}
        assert (await statuses(there.pull(name)))[-1] == {"status": "success"}
        sent, came = await here.find(name), await there.find(name)
        assert (came.digest, came.system, came.parameters) == (sent.digest, "Arr.", {"top_k": 3})
        await there.verify(came)

    asyncio.run(asyncio.wait_for(story(), 60))
