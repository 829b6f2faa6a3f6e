"""What the system lets these processes have: open files, memory, cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from bident.doctor.check import Finding, Patient
from bident.doctor.machine.surroundings import MachineCheck, Surroundings
from bident.text.runner.cgroup import Cgroup
from bident.text.runner.machine import available_memory, usable_cores

_GIBIBYTE = 1 << 30
_OWN_FILES = 512
"""Models, logs, workers and listening sockets."""
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BIDENT_TEXT_THREADS")


def _hard_limit() -> int | None:
    """Files that one process may have open; None where there is no limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit: int = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return None if limit == resource.RLIM_INFINITY else limit


class OpenFiles(MachineCheck):
    """The server raises the soft limit by itself: only the hard one can be too low."""

    name = "open-files"
    title = "A process may open fewer files than the server allows connections"

    def __init__(
        self, surroundings: Surroundings | None = None, hard_limit: Callable[[], int | None] = _hard_limit
    ) -> None:
        super().__init__(surroundings)
        self._hard_limit = hard_limit

    def examine(self, patient: Patient) -> Iterator[Finding]:
        limit, connections = self._hard_limit(), self._here.settings()[0].http_max_connections
        if limit is not None and connections and limit < connections + _OWN_FILES:
            yield self._risk(
                "ulimit -n",
                f"a process may open {limit} files, and --http-max-connections is {connections}",
                "each connection is an open file: further clients cannot connect once the limit is reached",
                f"raise it (LimitNOFILE={connections + _OWN_FILES} in a systemd unit, --ulimit nofile in docker), or "
                f"set BIDENT_HTTP_MAX_CONNECTIONS={max(1, limit - _OWN_FILES)}",
            )


class Memory(MachineCheck):
    """What the models' files take at least, once they are loaded."""

    name = "memory"
    title = "The models of the repository do not fit into memory"

    def __init__(
        self,
        surroundings: Surroundings | None = None,
        available: Callable[[], int] = available_memory,
        group: Cgroup | None = None,
    ) -> None:
        super().__init__(surroundings)
        self._available = available
        self._group = group or Cgroup()

    def examine(self, patient: Patient) -> Iterator[Finding]:
        repository = patient.repository
        if repository is None:
            return
        need, available = _bytes_below(repository), self._available()
        if need > available:
            limit = self._group.memory()
            yield self._risk(
                repository,
                f"the newest versions of its models have {need / _GIBIBYTE:.2f} GiB of files, and "
                f"{available / _GIBIBYTE:.2f} GiB of memory are free",
                "a control group limits this process (a container, a service)"
                if limit is not None and limit <= available
                else "other programs have the rest of it",
                "load what you need alone: bident up --model-control-mode=explicit --load-model=NAME; or raise the "
                "limit (docker run --memory, MemoryMax= of a service)",
            )


def _bytes_below(repository: Path) -> int:
    """Bytes in the newest version of every model."""
    total = 0
    try:
        for folder in repository.iterdir():
            versions = [path for path in folder.iterdir() if path.name.isdecimal()] if folder.is_dir() else []
            newest = max(versions, key=lambda path: int(path.name), default=None)
            total += sum(path.stat().st_size for path in newest.rglob("*") if path.is_file()) if newest else 0
    except OSError:
        return total
    return total


class ProcessorShare(MachineCheck):
    """More threads than cores wait for each other at every step of a model."""

    name = "processor-share"
    title = "More threads or servers are asked for than this process has cores"

    def __init__(self, surroundings: Surroundings | None = None, group: Cgroup | None = None) -> None:
        super().__init__(surroundings)
        self._group = group or Cgroup()

    def examine(self, patient: Patient) -> Iterator[Finding]:
        cores, quota = usable_cores(self._group), self._group.cores()
        why = (
            f"its control group gives it {quota:g} of the machine's {os.cpu_count()}"
            if quota is not None
            else f"that is what it may use of {os.cpu_count()}"
        )
        asked = [(name, self._here.environ.get(name, "")) for name in _THREAD_VARIABLES]
        asked.append(("BIDENT_WORKERS", str(self._here.settings()[0].workers)))
        for name, text in asked:
            if text.isdecimal() and int(text) > max(cores, 1):
                yield self._risk(
                    f"{name}={text}",
                    f"{text} are asked for, and this process has {cores} {'core' if cores == 1 else 'cores'}",
                    f"{why}; threads beyond that wait for each other at every step",
                    f"{name}={cores}, or unset it",
                )
