"""Drives ``h2load``: one gRPC message, sent as unary calls over HTTP/2 connections for some seconds."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_RATE = re.compile(r"^finished in .*?, ([\d.]+) req/s", re.MULTILINE)
_REQUESTS = re.compile(
    r"^requests: (\d+) total, \d+ started, (\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout",
    re.MULTILINE,
)
_STATUS = re.compile(r"^status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", re.MULTILINE)


class H2loadMissingError(RuntimeError):
    """The load generator is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "no `h2load` on the PATH: apt-get install nghttp2-client (Debian), brew install nghttp2 (macOS)"
        )


class BadAnswersError(RuntimeError):
    """Some calls failed, so the figures mean nothing."""


@dataclass(frozen=True)
class Load:
    """What one run of ``h2load`` saw."""

    requests: int
    per_second: float


def installed() -> bool:
    """Whether there is an ``h2load`` on the PATH."""
    return shutil.which("h2load") is not None


def framed(message: bytes) -> bytes:
    """``message`` as gRPC puts it into DATA frames: not compressed, its length before it."""
    return b"\x00" + len(message).to_bytes(4, "big") + message


def run(url: str, body: Path, *, connections: int, streams: int, seconds: int) -> Load:
    """Send the file ``body``, a framed message, to the method at ``url`` over one thread.

    ``streams`` calls are open on each of the ``connections`` at a time. h2load sees HTTP's status, not
    gRPC's: ask once with a client whether the answers are right. Raises H2loadMissingError or BadAnswersError.
    """
    if not installed():
        raise H2loadMissingError
    command = ["h2load", "-t1", f"-c{connections}", f"-m{streams}", f"-D{seconds}", "--warm-up-time=1", f"-d{body}"]
    headers = ["-H", "content-type: application/grpc", "-H", "te: trailers"]
    finished = subprocess.run([*command, *headers, url], capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        raise BadAnswersError(f"h2load failed on {url}: {finished.stderr.strip() or finished.stdout.strip()}")
    return parse(finished.stdout)


def parse(output: str) -> Load:
    """Read what ``h2load`` printed. Raises BadAnswersError."""
    rate, requests, status = (pattern.search(output) for pattern in (_RATE, _REQUESTS, _STATUS))
    if rate is None or requests is None or status is None:
        raise BadAnswersError(f"h2load reported nothing:\n{output}")
    _, done, succeeded, failed, errored, late = map(int, requests.groups())
    # What is still open when the time is over counts as neither.
    if failed or errored or late or not done or int(status[1]) != succeeded:
        raise BadAnswersError(f"h2load: {requests[0]}; {status[0]}")
    return Load(done, float(rate[1]))
