"""Which of the ports a server wants are taken, by whom, and the addresses people can reach it at."""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
from typing import NamedTuple

from bident.settings import security


def taken(address: str, port: int) -> bool:
    """Whether a server could not listen on ``address``:``port`` because another one does."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        if sys.platform != "win32":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            # Anything else (no such address, a privileged port) the server explains better itself.
            return error.errno == errno.EADDRINUSE
    return False


def free_port(address: str) -> int:
    """A port on ``address`` that nobody uses at the moment."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


class Holder(NamedTuple):
    """A process that listens on a port."""

    pid: int
    name: str
    command: tuple[str, ...]
    """Its command line; empty where that is other people's business."""
    addresses: tuple[str, ...]
    """Those it listens on."""

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})"


def holder(port: int) -> Holder | None:
    """Who listens on ``port``; None when nobody does, or the system does not tell."""
    import psutil

    # The whole table is the system administrator's on macOS; other people's processes are theirs anywhere.
    with contextlib.suppress(psutil.Error):
        listening = [
            (each.pid, each.laddr.ip)
            for each in psutil.net_connections("tcp")
            if each.status == psutil.CONN_LISTEN and each.pid and each.laddr and each.laddr.port == port
        ]
        for pid, _ in listening:
            process = psutil.Process(pid)
            try:
                command = tuple(process.cmdline())
            except psutil.AccessDenied:
                command = ()
            return Holder(pid, process.name(), command, tuple(address for other, address in listening if other == pid))
    return None


def owner(port: int) -> str:
    """Who listens on ``port``, as ``name (pid N)``; empty when the system does not tell."""
    return str(holder(port) or "")


def local(address: str) -> str:
    """The host to use in a URL on this machine for a server bound to ``address``."""
    host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(address, address)
    return f"[{host}]" if ":" in host else host


def is_everywhere(address: str) -> bool:
    """Whether ``address`` stands for every network of this machine."""
    return address in ("0.0.0.0", "::", "")


def lan_address() -> str:
    """This machine's address in its network; empty when it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends nothing; it only makes the system choose a route.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        address: str = probe.getsockname()[0]
    return "" if security.is_loopback(address) else address
