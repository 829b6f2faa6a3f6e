"""Fetches one file over HTTP(S) and accepts it only if it is exactly the file that was meant."""

from __future__ import annotations

import hashlib
import http.client
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from bident.errors import Code, ServeError
from bident.zoo.recipe import Report

_CHUNK = 1 << 18


@dataclass(frozen=True)
class RemoteFile:
    """A file on the web, pinned: ``size`` in bytes, ``sha256`` in hex."""

    url: str
    size: int
    sha256: str


def fetch(remote: RemoteFile, path: Path, report: Report, *, silence_s: float = 3.0, total_s: float = 120.0) -> None:
    """Download ``remote`` to ``path``.

    ``silence_s`` bounds each wait for the network, ``total_s`` the whole transfer. Raises UNAVAILABLE
    when the file cannot be had and INVALID_ARG when another file came; ``path`` then does not exist.
    """
    try:
        _stream(remote, path, report, silence_s, time.monotonic() + total_s)
        verify(path, remote.sha256, remote.url)
    except (OSError, http.client.HTTPException) as error:
        path.unlink(missing_ok=True)
        raise ServeError(Code.UNAVAILABLE, f"cannot download {remote.url}: {error}") from error
    except ServeError:
        path.unlink(missing_ok=True)
        raise


def verify(path: Path, sha256: str, source: str) -> None:
    """Check that ``path`` has the pinned ``sha256``. Raises INVALID_ARG naming ``source``."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != sha256:
        raise ServeError(
            Code.INVALID_ARG,
            f"{source} is not the file this recipe was written for: "
            f"expected sha256 {sha256}, got {digest.hexdigest()}; it was not used",
        )


def _stream(remote: RemoteFile, path: Path, report: Report, silence_s: float, deadline: float) -> None:
    """Copy the response to ``path``; a body longer than the pinned size is cut off, for ``verify`` to refuse."""
    received = 0
    with urllib.request.urlopen(remote.url, timeout=silence_s) as response, path.open("wb") as file:
        while received <= remote.size and (chunk := response.read(_CHUNK)):
            if time.monotonic() > deadline:
                raise TimeoutError("the transfer is too slow")
            received += len(chunk)
            file.write(chunk)
            report("downloading", min(1.0, received / remote.size))
