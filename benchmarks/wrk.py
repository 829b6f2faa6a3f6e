"""Drives ``wrk``: one body, POSTed over keep-alive connections for some seconds."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SCRIPT = Path(__file__).with_name("post.lua")
ERRORS = ("status", "connect", "read", "write", "timeout")


class WrkMissingError(RuntimeError):
    """The load generator is not installed."""

    def __init__(self) -> None:
        super().__init__("no `wrk` on the PATH: apt-get install wrk (Debian), brew install wrk (macOS)")


class BadAnswersError(RuntimeError):
    """Some requests failed, so the figures mean nothing."""


@dataclass(frozen=True)
class Load:
    """What one run of ``wrk`` saw. Latencies in microseconds."""

    requests: int
    per_second: float
    p50_us: float
    p90_us: float
    p99_us: float


def installed() -> bool:
    """Whether there is a ``wrk`` on the PATH."""
    return shutil.which("wrk") is not None


def run(
    url: str,
    body: Path,
    *,
    connections: int,
    seconds: int,
    content_type: str = "application/json",
    headers: Mapping[str, str] | None = None,
) -> Load:
    """POST the file ``body`` to ``url`` with one ``wrk`` thread.

    Raises WrkMissingError, or BadAnswersError when any request failed or had another status than 2xx or 3xx.
    """
    if not installed():
        raise WrkMissingError
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout=10s", "-s", str(SCRIPT), url]
    extra = [word for pair in (headers or {}).items() for word in pair]
    finished = subprocess.run(
        [*command, "--", str(body), content_type, *extra], capture_output=True, text=True, check=False
    )
    if finished.returncode != 0:
        raise BadAnswersError(f"wrk failed on {url}: {finished.stderr.strip() or finished.stdout.strip()}")
    return parse(finished.stdout)


def parse(output: str) -> Load:
    """Read what ``post.lua`` wrote at the end of ``wrk``'s output. Raises BadAnswersError."""
    line = next((line for line in output.splitlines() if line.startswith("wrk: ")), None)
    if line is None:
        raise BadAnswersError(f"wrk reported nothing:\n{output}")
    figures = {key: int(value) for key, value in (pair.split("=") for pair in line.split()[1:])}
    failed = {kind: figures[kind] for kind in ERRORS if figures[kind]}
    if failed or not figures["requests"]:
        raise BadAnswersError(f"{figures['requests']} answers, errors: {failed or 'none'}")
    return Load(
        requests=figures["requests"],
        per_second=figures["requests"] / (figures["duration"] / 1e6),
        p50_us=figures["p50"],
        p90_us=figures["p90"],
        p99_us=figures["p99"],
    )
