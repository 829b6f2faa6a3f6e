"""Runs a real Triton on a repository: prepares what it needs, forwards signals, says why it ended."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from bident.errors import ServeError
from bident.model.scratch import Scratch, ScratchRoot
from bident.settings import TensorSettings
from bident.ship.triton import linking
from bident.ship.triton.causes import SUMMARY, Said
from bident.ship.triton.flags import known_flags, tell
from bident.ship.triton.home import STUB, Home, Stub, find_home, has_gpu
from bident.ship.triton.interpreter import make_environment
from bident.ship.triton.shadow import Reading, Shadow
from bident.supervision import ended

logger = logging.getLogger("bident.server")

_PR_SET_PDEATHSIG = 1
_LOOK_SECONDS = 0.25
_LOOK_SHARE = 0.05
"""Looking for changes takes at most this part of the time."""
_SHM = Path("/dev/shm")
_LAST_WORDS_SECONDS = 1.0


def run_triton(settings: TensorSettings, given: Mapping[str, Sequence[str]]) -> int:
    """Serve tensors with a real Triton until a signal comes; the process's exit code.

    ``given``: what the settings were given as (:func:`bident.settings.given_texts`). 0 after a graceful
    stop, 1 when it cannot start or does not stop in time. Where Triton dies of a signal after it has
    served, so does this process: whoever started it sees the same end.
    """
    scratch = ScratchRoot.make()
    try:
        with _opened(settings.log_file) as log:
            code = _Child(_prepare(settings, given, scratch.path), log).run()
    except (OSError, ServeError) as error:
        logger.error("%s", error)
        return 1
    finally:
        scratch.remove()
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no other
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _opened(path: str) -> AbstractContextManager[BinaryIO]:
    """Where Triton's log goes: the file ``path``, at whose end it begins, or standard error. Raises OSError."""
    return Path(path).open("ab") if path else contextlib.nullcontext(sys.stderr.buffer)


@dataclass(frozen=True)
class _Prepared:
    """A command line with all that it refers to. ``follows``: models may change while it runs."""

    command: list[str]
    environment: dict[str, str]
    shadow: Shadow
    shm_prefix: str
    follows: bool


def _prepare(settings: TensorSettings, given: Mapping[str, Sequence[str]], folder: Path) -> _Prepared:
    """Find the server, see that it can run, and make what it needs in ``folder``. Raises ServeError, OSError."""
    home = find_home(os.environ)
    stub = home.stub() if "python" in home.backends() else None
    environment = home.environment(os.environ)
    usage = linking.output_of(home.binary, environment, "--help")
    told = tell(settings, given, known_flags(usage), home.folder)
    for notice in told.notices:
        logger.warning("%s", notice)
    if stub is not None:
        linking.output_of(stub.path, environment)
        assert settings.model_cache_directory is not None, "settled"
        python = make_environment(home, stub, folder / "python", settings.model_cache_directory)
        environment["PATH"] = os.pathsep.join([str(python), environment.get("PATH", os.defpath)])
    backends = _backend_directory(home, stub, folder / "backends")
    shadow = _shadow(settings, home, Scratch.make(folder).path)
    prefix = f"bident_{os.getpid()}_"
    command = [
        str(home.binary),
        *(f"--model-repository={path}" for path in shadow.paths),
        f"--backend-directory={backends}",
        f"--backend-config=python,shm-region-prefix-name={prefix}",
        *told.flags,
    ]
    return _Prepared(command, environment, shadow, prefix, settings.model_control_mode != "none")


def _shadow(settings: TensorSettings, home: Home, folder: Path) -> Shadow:
    """The shadow repositories, made; the log says which models run on Bident's backends."""
    reading = Reading(settings.model_config_name, not settings.disable_auto_complete_config, settings.backend_config)
    shadow = Shadow(list(settings.model_repository), folder, home.backends(), reading)
    shadow.refresh()
    for name, backend in sorted(shadow.stood_in_for().items()):
        logger.info(
            "model '%s': this Triton has no backend '%s', so Bident's runs inside its Python one", name, backend
        )
    return shadow


def _backend_directory(home: Home, stub: Stub | None, folder: Path) -> Path:
    """The backends of ``home`` as links, with ``stub`` beside the Python backend: an installation is never changed."""
    folder.mkdir()
    for name in home.backends():
        original = home.folder / "backends" / name
        if name != "python" or stub is None:
            (folder / name).symlink_to(original)
            continue
        (folder / name).mkdir()
        for entry in original.iterdir():
            if entry.name not in (STUB, "__pycache__"):
                (folder / name / entry.name).symlink_to(entry)
        (folder / name / STUB).symlink_to(stub.path)
    return folder


class _Child:
    """The server's process, from its start to the end of all that it has started."""

    def __init__(self, prepared: _Prepared, log: BinaryIO) -> None:
        self._prepared = prepared
        self._log = log
        self._said = Said(has_gpu=has_gpu())
        self._is_stopping = False
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Start it and stay with it. Returns its exit code, negative for a signal that nobody here sent."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._signal)
        libc = ctypes.CDLL(None)
        process = subprocess.Popen(
            self._prepared.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._prepared.environment,
            start_new_session=True,  # Ctrl-C is for this process, which then asks once
            # One call into a library that is loaded: the only other thread of this process waits for its input.
            preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),  # noqa: PLW1509
        )
        self._process = process
        logger.info("the triton server (pid %d) is started", process.pid)
        printing = threading.Thread(target=self._print, args=(process,), name="output", daemon=True)
        printing.start()
        began = time.monotonic()
        code = self._stay(process)
        self._end_what_is_left(process)
        printing.join(_LAST_WORDS_SECONDS)
        return self._verdict(code, time.monotonic() - began)

    def _stay(self, process: subprocess.Popen[bytes]) -> int:
        """Follow changes in the repository until the process has ended, or need not be waited for."""
        pause = _LOOK_SECONDS
        fault = ""
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(pause)
            if self._is_stopping and self._said.waits_in_vain:
                logger.warning(
                    "Triton waits for a model whose reload had failed, and is ended: all others are unloaded"
                )
                return 0
            if not self._prepared.follows or self._is_stopping:
                continue
            began = time.monotonic()
            try:
                if changed := self._prepared.shadow.refresh():
                    logger.info("changed in the repository: %s", ", ".join(changed))
                fault = ""
            except OSError as error:
                if fault != (fault := error.strerror or str(error)):  # it is tried again at every look
                    logger.error("the models that have changed cannot be prepared for Triton: %s", error)
            pause = max(_LOOK_SECONDS, (time.monotonic() - began) / _LOOK_SHARE)

    def _print(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if self._said.hear(line.decode("utf-8", "replace").rstrip("\n")):
                with contextlib.suppress(OSError, ValueError):  # whoever read it has gone; the server goes on
                    self._log.write(line)
                    self._log.flush()

    def _signal(self, number: int, _: FrameType | None) -> None:
        if self._process is None:
            raise SystemExit(1)
        logger.info("Signal (%d) received%s.", number, " again: ending Triton at once" if self._is_stopping else "")
        with contextlib.suppress(ProcessLookupError):
            if self._is_stopping:
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.send_signal(signal.SIGTERM)
        self._is_stopping = True

    def _end_what_is_left(self, process: subprocess.Popen[bytes]) -> None:
        """Stubs outlive a server that has died, and so does the memory that they shared with it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        for region in _SHM.glob(f"{self._prepared.shm_prefix}*"):
            with contextlib.suppress(OSError):
                region.unlink()

    def _verdict(self, code: int, lived: float) -> int:
        if code == 0:
            return 0
        if self._is_stopping:
            logger.error("exit timeout: Triton did not end as asked (%s)", ended(code))
            return 1
        how = linking.died_of(code) if code < 0 else ended(code)
        causes = "".join(f"\n  {cause}" for cause in self._said.causes())
        logger.error("%s %.0f s (%s)%s", SUMMARY, lived, how, f":{causes}" if causes else "")
        return code if self._said.has_served else 1
