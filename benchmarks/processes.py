"""What a server's processes hold in memory."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Held:
    """What one process holds and what those that it has started hold, in MB (10^6 bytes)."""

    by_itself: float
    by_children: float


def resident_megabytes(pid: int) -> float:
    """Resident set size of process ``pid`` and all its descendants, in MB (10^6 bytes)."""
    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,rss="], capture_output=True, text=True, check=True)
    return total_kilobytes(listing.stdout, pid) * 1024 / 1e6


def held_megabytes(pid: int) -> Held:
    """Proportional set sizes: a page of shared memory counts once, split among the processes that have it mapped.

    Linux only. Raises RuntimeError when ``pid`` has not started any process.
    """
    process = psutil.Process(pid)
    children = process.children(recursive=True)
    if not children:
        raise RuntimeError(f"process {pid} has no children: the model does not run in a process of its own")
    return Held(_proportional(process), sum(map(_proportional, children)))


def _proportional(process: psutil.Process) -> float:
    size: int = process.memory_full_info().pss
    return size / 1e6


def total_kilobytes(listing: str, pid: int) -> int:
    """Sum the third column of ``ps`` lines "pid ppid rss" over ``pid`` and its descendants."""
    children: dict[int, list[int]] = {}
    resident: dict[int, int] = {}
    for line in listing.splitlines():
        process, parent, kilobytes = map(int, line.split())
        children.setdefault(parent, []).append(process)
        resident[process] = kilobytes
    family, total = [pid], 0
    while family:
        member = family.pop()
        total += resident.get(member, 0)
        family += children.get(member, [])
    return total
