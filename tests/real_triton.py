"""A real Triton for the tests: installed once, started by ``bident serve tensor --engine=triton``."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import psutil

from benchmarks.peers.triton import ENVIRONMENT, installed
from benchmarks.servers import Bident


def make_triton() -> None:
    """Install the real Triton if nobody has yet."""
    if not installed():
        root = Path(__file__).parents[1]
        subprocess.run(["make", "triton", f"PYTHON={sys.executable}"], cwd=root, check=True, timeout=1800)


class ServedByTriton(Bident):
    """``bident serve tensor --engine=triton`` on a repository; ``home`` is its TRITON_HOME."""

    def __init__(self, repository: Path, log: Path, *flags: str, home: Path = ENVIRONMENT) -> None:
        super().__init__(repository, log, "--engine=triton", *flags)
        self._environment["TRITON_HOME"] = str(home)
        self._deadline_seconds = 180.0  # each model starts two interpreters

    def ends(self, seconds: float = 60.0) -> tuple[int, str]:
        """The exit code and all that it printed, of a server that is to end by itself."""
        assert self._process is not None
        code = self._process.wait(seconds)
        return code, self.log.read_text(errors="replace")

    def triton_pid(self) -> int:
        """The process that the server has started."""
        said = self.log.read_text(errors="replace").partition("the triton server (pid ")[2]
        return int(said.partition(")")[0])


def stubs_of(triton: int) -> list[int]:
    """The processes of a Triton's group but itself, which run its Python models; not those that only await burial."""
    found = []
    for process in psutil.process_iter(["status"]):
        with contextlib.suppress(ProcessLookupError):
            if process.pid != triton and os.getpgid(process.pid) == triton:
                found.append(process)
    return [process.pid for process in found if process.info["status"] != psutil.STATUS_ZOMBIE]
