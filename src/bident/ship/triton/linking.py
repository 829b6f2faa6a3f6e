"""Whether a program of Triton's can be run on this machine at all, asked of the system's dynamic loader."""

from __future__ import annotations

import errno
import platform
import re
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from bident.errors import Code, ServeError
from bident.supervision import ended

_SECONDS = 60.0
_MISSING = re.compile(r"error while loading shared libraries: ([^:\s]+): (.*)")
_GLIBC = re.compile(r"version `(GLIBC(?:XX)?_[\d.]+)' not found")
_PACKAGES = {
    "libb64": "libb64-0d",
    "libre2": "libre2-9",
    "libssl": "libssl3",
    "libcrypto": "libssl3",
    "libnuma": "libnuma1",
    "libcurl": "libcurl4",
    "libarchive": "libarchive13",
    "libxml2": "libxml2",
    "libdcgm": "datacenter-gpu-manager",
}
"""Debian's packages of what Triton's release archives take for granted."""


def output_of(program: Path, environment: Mapping[str, str], *arguments: str) -> str:
    """What ``program`` prints. Raises UNAVAILABLE that names why it cannot be run: a library, glibc, the processor."""
    try:
        done = subprocess.run(
            [program, *arguments],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _unable(program, f"it still ran after {_SECONDS:.0f} s, asked for nothing but its help") from None
    except OSError as error:
        raise _unable(program, _refused(error)) from None
    if cause := _loader_fault(done.stdout):
        raise _unable(program, cause)
    if done.returncode < 0:
        raise _unable(program, died_of(done.returncode))
    return done.stdout


def died_of(code: int) -> str:
    """How a process ended that a signal killed (``code`` is negative), and what that is a sign of."""
    signs = {
        signal.SIGILL: "; this processor lacks instructions that it was built for",
        signal.SIGKILL: "; if nobody did that, memory ran out: see 'dmesg'",
        signal.SIGBUS: "; /dev/shm may be full: see 'df /dev/shm'",
    }
    return f"{ended(code)}{next((sign for number, sign in signs.items() if code == -number), '')}"


def _refused(error: OSError) -> str:
    if error.errno == errno.EACCES:
        return "it is not executable; chmod +x it, and see that its file system is not mounted noexec"
    if error.errno in (errno.ENOEXEC, errno.ENOENT):  # ENOENT of a file that is there: its loader is not
        return f"it is a program for another kind of machine than this one ({platform.machine()})"
    return error.strerror or str(error)


def _loader_fault(printed: str) -> str:
    if needs := sorted(set(_GLIBC.findall(printed))):
        here = " ".join(platform.libc_ver())
        return f"it needs {', '.join(needs)}, and this system has {here}; take a build for an older system"
    if missing := _MISSING.search(printed):
        return _library(*missing.groups())
    return ""


def _library(name: str, why: str) -> str:
    stem = re.split(r"[-.]", name)[0]
    if python := re.match(r"libpython(3\.\d+)", name):
        cure = (
            f"install it (Debian: apt-get install libpython{python[1]}), or run Bident with a Python that was built "
            "with --enable-shared"
        )
    elif stem in _PACKAGES:
        cure = f"install it (Debian: apt-get install {_PACKAGES[stem]}), or add its folder to LD_LIBRARY_PATH"
    else:
        cure = "add the folder that holds it to LD_LIBRARY_PATH; if none does, the installation is not whole"
    return f"the library {name} cannot be loaded ({why}); {cure}"


def _unable(program: Path, cause: str) -> ServeError:
    return ServeError(Code.UNAVAILABLE, f"--engine=triton: {program} cannot be run: {cause}")
