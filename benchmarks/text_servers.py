"""The text server and, as its peer, the llama.cpp process that answers behind it, asked without it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from benchmarks.ports import free_port
from benchmarks.servers import Server, ServerDiedError, bident_command
from bident.errors import Code, ServeError
from bident.text.model import TextModel
from bident.text.runner.limits import Limits
from bident.text.runner.machine import usable_cores
from bident.text.runner.plan import Plan
from bident.text.runner.wish import embeds_only, wish_of
from bident.text.store.library import Library

LIBRARY = Path(__file__).resolve().parents[1] / "build" / "benchmarks" / "text_library"
"""Pulled once and kept: the models do not change from run to run."""

_KEY = "the-benchmark"
_STOP_SECONDS = 10.0


class TextServer(Server):
    """``bident serve text`` on the benchmarks' library; ``arguments`` are further flags of the command."""

    headers: tuple[str, ...] = ()

    def __init__(self, log: Path, *arguments: str) -> None:
        port = free_port()
        command = [bident_command(), "serve", "text", f"--port={port}", f"--models={LIBRARY}", "--upstream=none"]
        super().__init__([*command, *arguments], port, log, ready_path="/api/version")


class BareChild:
    """The process that the server starts for ``model``, with the same settings, started by the benchmark."""

    headers = (f"Authorization: Bearer {_KEY}",)

    def __init__(self, model: TextModel, log: Path, slots: int | None = None) -> None:
        """With as many ``slots`` as the server gives the model, unless told otherwise."""
        self.port = 0
        self._plan = plan_for(model, slots)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> BareChild:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bident.text.runner.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": str(self._plan.threads)},
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(self._plan.dumps(_KEY, os.getpid()))
        self._process.stdin.flush()
        said = json.loads(self._process.stdout.readline() or b"{}")
        if "address" not in said:
            self._stop()
            raise ServerDiedError(f"the llama.cpp process did not start: {said} {self._log.read_text()[-2000:]}")
        self.port = urlsplit(said["address"]).port or 0
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_SECONDS)
        finally:
            self._process.kill()


def plan_for(model: TextModel, slots: int | None = None) -> Plan:
    """How the server loads ``model`` where nothing else is set and nothing else is loaded."""
    limits = Limits()
    usual = 1 if embeds_only(model) else limits.slots
    return wish_of(model, {}, limits).plan(limits, slots or usual, max(1, usable_cores() - 1))


def pulled(name: str, root: Path = LIBRARY) -> TextModel:
    """The model ``name`` of the catalogue, pulled into the library at ``root`` if it has not been yet."""
    return asyncio.run(_pulled(name, root))


async def _pulled(name: str, root: Path) -> TextModel:
    library = Library(root)
    try:
        return await library.find(name)
    except ServeError as error:
        if error.code is not Code.NOT_FOUND:
            raise
    async for _ in library.pull(name):
        pass
    return await library.find(name)
