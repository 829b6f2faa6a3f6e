"""Ways from clients to the servers that lead elsewhere."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bident.doctor.check import Finding, Patient
from bident.doctor.machine.installed import site_packages
from bident.doctor.machine.surroundings import MachineCheck, Surroundings
from bident.settings.security import is_loopback

_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_LOOPBACK = ("127.0.0.1", "localhost")
_DAY = 86_400.0


class Proxies(MachineCheck):
    """Most HTTP clients heed these variables, also for servers on the same machine."""

    name = "proxies"
    title = "Requests to this machine's servers go through a proxy"

    def examine(self, patient: Patient) -> Iterator[Finding]:
        environ = self._here.environ
        used = [name for low in _PROXIES for name in (low, low.upper()) if environ.get(name)]
        exempt = {
            name.strip().lstrip(".")
            for name in f"{environ.get('no_proxy', '')},{environ.get('NO_PROXY', '')}".split(",")
        }
        missing = [name for name in _LOOPBACK if name not in exempt]
        if used and missing and "*" not in exempt:
            yield self._risk(
                used[0],
                f"{', '.join(used)} is set, and NO_PROXY does not name {' or '.join(missing)}",
                "clients ask the proxy for http://127.0.0.1:8000, and the proxy refuses, or asks itself",
                "export NO_PROXY=localhost,127.0.0.1,::1 and no_proxy to the same",
            )


def _resolve(name: str) -> list[str]:
    return [str(entry[4][0]) for entry in socket.getaddrinfo(name, 80, type=socket.SOCK_STREAM)]


class LocalhostName(MachineCheck):
    """Clients say localhost, the servers listen on 127.0.0.1."""

    name = "localhost-name"
    title = "localhost is not 127.0.0.1 here"

    def __init__(
        self, surroundings: Surroundings | None = None, resolve: Callable[[str], list[str]] = _resolve
    ) -> None:
        super().__init__(surroundings)
        self._resolve = resolve

    def examine(self, patient: Patient) -> Iterator[Finding]:
        try:
            addresses = self._resolve("localhost")
        except OSError as error:
            addresses, seen = [], f"the name is not known: {error.strerror or error}"
        else:
            seen = f"it stands for {', '.join(dict.fromkeys(addresses))}"
        if "127.0.0.1" not in addresses:
            yield self._risk(
                "localhost",
                seen,
                "the servers listen on 127.0.0.1; clients that are given localhost try other addresses",
                "add the line '127.0.0.1 localhost' to /etc/hosts, or give clients 127.0.0.1",
            )


def _newest_file() -> float:
    """When the newest package was installed, in seconds since the epoch: the clock has been there already."""
    found = [path.stat().st_mtime for folder in site_packages() for path in folder.glob("*.dist-info")]
    return max(found, default=0.0)


class Clock(MachineCheck):
    """No server needs to be asked: the clock must not be behind what was written with it."""

    name = "clock"
    title = "The clock is behind"

    def __init__(self, now: Callable[[], float] = time.time, newest: Callable[[], float] = _newest_file) -> None:
        super().__init__()
        self._now = now
        self._newest = newest

    def examine(self, patient: Patient) -> Iterator[Finding]:
        try:
            behind = self._newest() - self._now()
        except OSError:
            return
        if behind > _DAY:
            yield self._broken(
                time.strftime("%Y-%m-%d %H:%M", time.gmtime(self._now())),
                f"the clock is {behind / _DAY:.0f} days behind the files of the installation",
                "certificates are not valid yet by this clock: every https download is refused",
                "set the clock: timedatectl set-ntp true, or date -s; in a virtual machine let the host set it",
            )


class LoopbackInContainer(MachineCheck):
    """A container's 127.0.0.1 is its own."""

    name = "loopback-in-container"
    title = "The servers of this container cannot be reached from outside it"

    def __init__(self, surroundings: Surroundings | None = None, root: Path = Path("/")) -> None:
        super().__init__(surroundings)
        self._root = root

    def examine(self, patient: Patient) -> Iterator[Finding]:
        marks = ("/.dockerenv", "/run/.containerenv")
        found = next((mark for mark in marks if (self._root / mark.lstrip("/")).exists()), None)
        tensor, text = self._here.settings()
        inside = [
            name
            for name, address in (("tensor", tensor.http_address), ("text", text.host.host))
            if is_loopback(address)
        ]
        if found and inside:
            yield self._note(
                found,
                f"this is a container, and the {' and the '.join(inside)} server would listen on 127.0.0.1",
                "a published port leads to the container's own address, not to its 127.0.0.1; other containers cannot "
                "reach that either",
                "BIDENT_HTTP_ADDRESS=0.0.0.0 BIDENT_GRPC_ADDRESS=0.0.0.0 BIDENT_TEXT_HOST=0.0.0.0, with a file of API "
                "keys (BIDENT_API_KEY_FILE, BIDENT_TEXT_API_KEY_FILE); publish on the host as 127.0.0.1:8000:8000",
            )
