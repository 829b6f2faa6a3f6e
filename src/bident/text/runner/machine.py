"""The machine under the models: the cores and the memory they may use, and whether llama.cpp can run on it."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import math
import os
import platform
import sys
from pathlib import Path

import psutil

from bident.errors import Code, ServeError
from bident.text.runner.cgroup import Cgroup

_NEEDED_FLAGS = frozenset({"avx2", "fma", "f16c", "bmi2"})
"""What the x86 packages of llama.cpp are compiled for; without one of them it dies of an illegal instruction."""


def usable_cores(group: Cgroup | None = None) -> int:
    """Cores that this process may keep busy: its affinity, and the quota of its control group. At least 1.

    Never the machine's count: threads beyond the usable cores wait for each other at every step of the model.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = (group or Cgroup()).cores()
    return max(1, cores if quota is None else min(cores, math.floor(quota)))


def available_memory(group: Cgroup | None = None) -> int:
    """Bytes that processes can still be given without swapping."""
    available = int(psutil.virtual_memory().available)
    left = (group or Cgroup()).memory()
    return available if left is None else min(available, left)


def memory_of(process: int) -> tuple[int, int]:
    """Bytes of memory that ``process`` uses, and how many of them are files, which count as available; 0 if gone."""
    try:
        memory = psutil.Process(process).memory_info()
    except psutil.Error:
        return 0, 0
    return int(memory.rss), int(getattr(memory, "shared", 0))


def require_llama_cpp() -> None:
    """Raise UNSUPPORTED, saying what to install, unless llama.cpp can run here. Looks only once."""
    if problem := _problem():
        raise ServeError(Code.UNSUPPORTED, f"text models cannot be run here: {problem}")


@functools.cache
def _problem() -> str:
    if importlib.util.find_spec("xllamacpp") is None:
        return 'the package xllamacpp is not installed; pip install "bident[text]"'
    missing = missing_flags(_cpu_information())
    if missing:
        return (
            f"the processor lacks {', '.join(missing)}, which the package xllamacpp is compiled for; "
            f"build it from source for this processor: pip install --no-binary xllamacpp xllamacpp"
        )
    if sys.platform == "linux" and not _loads("libgomp.so.1"):
        return "the system library libgomp.so.1 is missing; install libgomp1 (Debian, Ubuntu) or libgomp (Fedora)"
    return ""


def missing_flags(cpu_information: str) -> list[str]:
    """Of what llama.cpp's x86 packages need, what the processors of ``/proc/cpuinfo`` do not have."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return []
    for line in cpu_information.splitlines():
        name, _, flags = line.partition(":")
        if name.strip() == "flags":
            return sorted(_NEEDED_FLAGS - set(flags.split()))
    return []  # another system than Linux: nothing is known


def _cpu_information() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return ""


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
