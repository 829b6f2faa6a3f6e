"""Servers that end with the terminal or the notebook they were started from."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import psutil

from bident.doctor.check import Finding, Patient
from bident.doctor.machine.surroundings import MachineCheck

_SESSIONS = ("tmux", "screen", "zellij")
"""Programs that keep their terminals when the one they are looked at from goes."""
_NOTEBOOKS = ("ipykernel", "jupyter", "colab_kernel")


def servers_here() -> Iterator[psutil.Process]:
    """The first process of every server: Bident's, a real Triton's, an Ollama's."""
    found = {process.pid: process for process in psutil.process_iter(["pid", "cmdline"]) if _is_server(process)}
    for process in found.values():
        with contextlib.suppress(psutil.Error):
            if process.ppid() not in found:
                yield process


def _is_server(process: psutil.Process) -> bool:
    words = [Path(word).name for word in process.info["cmdline"] or ()]
    if words[:1] == ["tritonserver"] or words[:2] == ["ollama", "serve"]:
        return True
    return ("bident", "serve") in pairwise(words)


class DyingTerminal(MachineCheck):
    """When a session ends, the system ends the programs that belong to it (SIGHUP)."""

    name = "dying-terminal"
    title = "A server ends when its terminal or notebook does"

    def __init__(self, servers: Callable[[], Iterable[psutil.Process]] = servers_here) -> None:
        super().__init__()
        self._servers = servers

    def examine(self, patient: Patient) -> Iterator[Finding]:
        if sys.platform == "win32":
            return
        for process in self._servers():
            with contextlib.suppress(psutil.Error, OSError):
                if (tie := _tie(process)) and not _ignores_hangup(process.pid):
                    yield self._risk(
                        f"pid {process.pid}",
                        f"'{' '.join(process.cmdline())[:80]}' {tie}",
                        "when the session ends, or the cell or kernel is restarted, the system ends what it started",
                        "end it, and start it detached: bident up; other programs: setsid nohup PROGRAM > LOG 2>&1 &",
                    )


def _tie(process: psutil.Process) -> str:
    """What the process will end with; empty if it stands alone."""
    parents = process.parents()
    if terminal := process.terminal():
        opener = next((parent.name().lower() for parent in parents if parent.terminal() != terminal), "")
        return "" if opener.startswith(_SESSIONS) else f"belongs to the terminal {terminal}"
    session = os.getsid(process.pid)
    for parent in parents:
        if any(word in part for part in parent.cmdline() for word in _NOTEBOOKS) and os.getsid(parent.pid) == session:
            return f"belongs to the notebook of pid {parent.pid}"
    return ""


def _ignores_hangup(pid: int) -> bool:
    """Whether it was started with nohup. Only Linux tells."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    mask = next((int(line.split()[1], 16) for line in lines if line.startswith("SigIgn:")), 0)
    return bool(mask >> (signal.SIGHUP - 1) & 1)
