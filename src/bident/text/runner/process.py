"""A child's operating system process: start it, learn where it listens, notice its end, end it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import bident
from bident.errors import Code, ServeError
from bident.text.runner import reasons
from bident.text.runner.plan import Plan

logger = logging.getLogger("bident.text")

_HOME = Path(bident.__file__).parent.parent
"""Where children start: ``-m`` looks there first, and finds this very package and nothing else."""
_LINE_LIMIT = 1 << 16
_READ_SIZE = 4096
_STOP_SECONDS = 3.0
_LAST_WORDS_SECONDS = 0.5
TEMPLATE_SECONDS = 5.0
"""How long a chat template may run. One that loops never ends, and llama.cpp cannot be told to stop it."""
ENDLESS_TEMPLATE = (
    f"its chat template (tokenizer.chat_template in the GGUF file) was still running after {TEMPLATE_SECONDS:g} "
    "seconds, so it was ended"
)


class Process:
    """One running child. Made by :func:`start`."""

    def __init__(self, process: asyncio.subprocess.Process, label: str) -> None:
        self.label = label
        self.pid = process.pid
        self.host, self.port, self.key = "127.0.0.1", 0, secrets.token_urlsafe(32)
        self.ended = asyncio.Event()
        self.how = ""
        """How it ended, once it has."""
        self._process = process
        self._printed = b""
        self._verdict = ""
        self._tell: Callable[[], None] | None = None
        self._has_weights = asyncio.Event()
        """The weights are read and their memory is taken; what follows is its chat template."""
        self._saying: asyncio.Task[bytes] | None = None
        self._hearing = asyncio.create_task(self._hear())
        self._watching = asyncio.create_task(self._watch())

    def when_ended(self, tell: Callable[[], None]) -> None:
        """Have ``tell`` called, on the loop, when the process ends; at once if it has."""
        self._tell = tell
        if self.ended.is_set():
            tell()

    def kill(self, verdict: str = "") -> None:
        """End it at once. ``verdict`` says why, if it is not by its own doing that it ends."""
        self._verdict = self._verdict or verdict
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def stop(self) -> None:
        """End it, and wait until all it used is given back."""
        self._tell = None
        self._verdict = self._verdict or "the model was unloaded"
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self.ended.wait(), _STOP_SECONDS)
        except asyncio.TimeoutError:
            self.kill()
            await self.ended.wait()
        except asyncio.CancelledError:
            self.kill()
            raise

    async def begin(self, plan: Plan) -> None:
        """Tell it what to do and wait until it has read the weights, or has ended."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with contextlib.suppress(ConnectionError):  # it has ended already: its output says why
            stdin.write(plan.dumps(self.key, os.getpid()))
            await stdin.drain()
        self._saying = asyncio.create_task(stdout.readline())
        reading = asyncio.create_task(self._has_weights.wait())
        try:
            await asyncio.wait({self._saying, reading}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            reading.cancel()

    async def listening(self) -> None:
        """Return when it listens, which it does as soon as it has tried its chat template.

        Raises INTERNAL with the reason when it does not; then no process is left.
        """
        assert self._saying is not None
        try:
            said = _parsed(await asyncio.wait_for(self._saying, TEMPLATE_SECONDS))
            address = urlsplit(str(said.get("address", "")))
            if not address.port:
                await self.ended.wait()
                raise self._unable(self._reason(said))
            self.port = address.port
        except asyncio.TimeoutError:
            raise self._unable(f"{ENDLESS_TEMPLATE}. Take the model from another source") from None
        finally:
            if not self.port:
                self.kill()
                await self.ended.wait()

    def _unable(self, why: str) -> ServeError:
        return ServeError(Code.INTERNAL, f"unable to load model '{self.label}': {why}")

    def _reason(self, said: dict[str, Any]) -> str:
        if not said and self._has_weights.is_set():
            return f"{self.how}, while its chat template (tokenizer.chat_template in the GGUF file) was tried"
        if "missing" in said:
            return f"llama.cpp could not be imported: {said['missing']}"
        if "failed" in said:
            cause = reasons.failure(self._printed) or said["failed"]
            return f"{cause}. The file may be damaged or made for another program; pull or create it anew"
        return self.how

    async def _hear(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None
        while data := await stderr.read(_READ_SIZE):
            self._printed = (self._printed + data)[-reasons.LAST_BYTES :]
            if not self._has_weights.is_set() and reasons.has_weights(self._printed):
                self._has_weights.set()
            if logger.isEnabledFor(logging.DEBUG):
                logger.debug("%s: %s", self.label, data.decode("utf-8", "replace").rstrip())

    async def _watch(self) -> None:
        code = await self._process.wait()
        # What it has started may hold the other end of the pipe for ever.
        await asyncio.wait([self._hearing], timeout=_LAST_WORDS_SECONDS)
        self._hearing.cancel()
        self.how = self._verdict or reasons.end(code, self._printed)
        self.ended.set()
        if self._tell is not None:
            self._tell()


async def start(plan: Plan, label: str, seconds: float) -> Process:
    """A child that has taken its memory for ``plan``, and will be :meth:`Process.listening` soon if all is well.

    ``label`` is what the model is called in messages. Raises INTERNAL when it has not in ``seconds`` (0 or infinite:
    however long it takes). Then, and when this is cancelled, no process is left. It must be called on a loop that
    lives as long as the child: on Linux the kernel ends a child with the thread that started it.
    """
    process = Process(await _spawn(plan), label)
    try:
        await asyncio.wait_for(process.begin(plan), seconds if 0 < seconds < math.inf else None)
    except asyncio.TimeoutError:
        process.kill()
        await process.ended.wait()
        raise ServeError(
            Code.INTERNAL,
            f"unable to load model '{label}': it was not loaded within {seconds:g} seconds. "
            f"A longer OLLAMA_LOAD_TIMEOUT gives it more time",
        ) from None
    except BaseException:
        process.kill()
        await process.ended.wait()
        raise
    return process


async def _spawn(plan: Plan) -> asyncio.subprocess.Process:
    environment = {**os.environ, "GGML_NO_BACKTRACE": "1", "OMP_NUM_THREADS": str(plan.threads)}
    # Ctrl-C at the terminal is the server's to deal with: it reaches the children's group otherwise.
    apart: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        apart = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    try:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "bident.text.runner.child"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LINE_LIMIT,
            cwd=_HOME,
            env=environment,
            **apart,
        )
    except OSError as error:
        raise ServeError(Code.INTERNAL, f"no process can be started for a model: {error}") from error


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
