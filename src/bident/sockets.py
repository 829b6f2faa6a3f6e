"""Binding the doors' ports, all or none, with every conflict named at once."""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass

from bident.errors import Code, ServeError

_HIGHEST_PORT = 65535
_TENSOR_FLAGS = "--http-port, --grpc-port, --metrics-port"

BALANCES = sys.platform == "linux"
"""Whether the system spreads connections over the processes that listen on one port; elsewhere one gets them all."""


@dataclass(frozen=True)
class Listening:
    """A service and where it wants to listen; port 0 takes a free one."""

    service: str
    address: str
    port: int
    shared: bool = False


def bind_all(wanted: list[Listening], flags: str = _TENSOR_FLAGS) -> dict[str, socket.socket]:
    """Bound sockets by service name. ``flags`` are those that choose the ports.

    Raises UNAVAILABLE that lists every address that could not be had; nothing stays bound then.
    """
    return _all(wanted, _listen, flags)


def reserve_all(wanted: list[Listening]) -> dict[str, socket.socket]:
    """As :func:`bind_all`, for processes that share the ports. Where the system balances them it does not listen:
    each process binds a socket of its own, ``shared``, and the port is this one's as long as the socket is open.
    """
    return _all(wanted, _reserve if BALANCES else _listen, _TENSOR_FLAGS)


def _all(wanted: list[Listening], bind: Callable[[Listening], socket.socket], flags: str) -> dict[str, socket.socket]:
    bound: dict[str, socket.socket] = {}
    problems: list[str] = []
    for service in wanted:
        try:
            bound[service.service] = bind(service)
        except OSError as error:
            problems.append(f"{service.service} on {service.address}:{service.port} ({_cause(error)})")
    if problems:
        for sock in bound.values():
            sock.close()
        raise ServeError(
            Code.UNAVAILABLE,
            f"cannot listen: {'; '.join(problems)}. Stop what uses the port, or choose another one "
            f"({flags}; 0 picks a free one)",
        )
    return bound


def _bind(wanted: Listening) -> socket.socket:
    if not 0 <= wanted.port <= _HIGHEST_PORT:  # the C library would cut it to 16 bits and bind another port
        raise OSError(f"a port is a number from 0 to {_HIGHEST_PORT}")
    family, kind, protocol, _, address = socket.getaddrinfo(
        wanted.address, wanted.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, protocol)
    try:
        if hasattr(socket, "SO_REUSEPORT") and wanted.shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def _listen(wanted: Listening) -> socket.socket:
    sock = _bind(wanted)
    try:
        # Already here, so that a second server sees the conflict before it loads anything.
        sock.listen(4096)
    except OSError:
        sock.close()
        raise
    return sock


def _reserve(wanted: Listening) -> socket.socket:
    # Shared only once it is bound: a port that a stranger shares in the same way would look free otherwise.
    sock = _bind(wanted)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return sock


def _cause(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "already in use"
    if error.errno == errno.EACCES:
        return "not permitted: ports below 1024 need privileges"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine has no such address"
    return error.strerror or str(error)
