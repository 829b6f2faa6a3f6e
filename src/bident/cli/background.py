"""A server in the background: start it and see it become ready, or find out why it did not."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bident.cli import ports, process
from bident.cli.record import Record, forget, log_file
from bident.client import Client
from bident.errors import Code, ServeError, invalid_arg
from bident.settings import TABLE, TensorSettings

_STEP_SECONDS = 0.05
_TAIL_LINES = 15
_GRACE_SECONDS = 5.0
"""How much longer than it promised a server may take to end."""
_WAITED_FOR = {row.name: not row.effect for row in TABLE}
"""Whether a setting does something: a door that is not built takes no port."""


def serve_command(flags: Sequence[str]) -> list[str]:
    """The command line of the server itself."""
    return [sys.executable, "-m", "bident", "serve", *flags]


def check_ports(settings: TensorSettings) -> None:
    """Raise UNAVAILABLE that names every port the server wants and others hold, and the holders."""
    doors = (
        ("HTTP", settings.allow_http, settings.http_address, settings.http_port, settings.reuse_http_port),
        ("gRPC", _grpc_opens(settings), settings.grpc_address, settings.grpc_port, settings.reuse_grpc_port),
        ("metrics", settings.allow_metrics, settings.metrics_address, settings.metrics_port, False),
    )
    conflicts = []
    for door, opens, address, port, shared in doors:
        if opens and port and not shared and ports.taken(address, port):
            holder = ports.owner(port)
            conflicts.append(f"port {port} ({door}) is in use" + (f" by {holder}" if holder else ""))
    if conflicts:
        raise ServeError(
            Code.UNAVAILABLE,
            f"{'; '.join(conflicts)}. Stop what holds it, or choose another with --http-port or --metrics-port",
        )


def with_real_ports(settings: TensorSettings) -> TensorSettings:
    """``settings`` with free ports in place of 0, so that the server can be found again."""
    http = settings.http_port or ports.free_port(settings.http_address)
    metrics = settings.metrics_port or ports.free_port(settings.metrics_address)
    return replace(settings, http_port=http, metrics_port=metrics)


def start(settings: TensorSettings, flags: Sequence[str], state_dir: Path) -> tuple[Record, Callable[[], bool]]:
    """Start the server; its record, and a question: does it still run?"""
    state_dir.mkdir(parents=True, exist_ok=True)
    log = log_file(state_dir)
    log.write_bytes(b"")
    started = process.spawn(serve_command(flags), log)
    host, metrics_host = ports.local(settings.http_address), ports.local(settings.metrics_address)
    record = Record(
        pid=started.pid,
        born=process.born(started.pid),
        url=f"http://{host}:{settings.http_port}",
        metrics_url=f"http://{metrics_host}:{settings.metrics_port}" if settings.allow_metrics else "",
        address=settings.http_address,
        control_mode=settings.model_control_mode,
        exit_timeout_secs=settings.exit_timeout_secs,
        log=str(log.resolve()),
    )
    record.write(state_dir)
    return record, lambda: started.poll() is None


def wait_until_ready(record: Record, runs: Callable[[], bool], seconds: float) -> list[dict[str, Any]]:
    """Wait for the server; the index entries of models that failed, when it serves without them.

    Raises UNAVAILABLE with the end of its log when it dies, or when ``seconds`` pass.
    """
    client = Client(record.url, timeout=5.0)
    deadline = time.monotonic() + seconds
    while runs():
        if client.ready():
            return []
        if failed := _settled_failures(client):
            return failed
        if time.monotonic() > deadline:
            raise ServeError(
                Code.UNAVAILABLE,
                f"the server (pid {record.pid}) runs but is not ready after {seconds:.0f} s; see 'bident logs', "
                f"wait on with 'bident status', or end it with 'bident down'. The end of its log:\n{tail(record)}",
            )
        time.sleep(_STEP_SECONDS)
    raise ServeError(Code.UNAVAILABLE, f"the server ended before it was ready. The end of its log:\n{tail(record)}")


def stop(record: Record, state_dir: Path) -> bool:
    """End the server: ask, wait for what is in flight, then insist. True when asking was enough."""
    process.ask_to_stop(record.pid)
    ended = _ends_within(record, record.exit_timeout_secs + _GRACE_SECONDS)
    if not ended:
        process.kill(record.pid)
        if not _ends_within(record, 5):
            raise invalid_arg(f"the server (pid {record.pid}) does not end; end that process yourself")
    forget(state_dir)
    return ended


def tail(record: Record, lines: int = _TAIL_LINES) -> str:
    """The last ``lines`` lines of the server's log."""
    try:
        with Path(record.log).open(encoding="utf-8", errors="replace") as log:
            return "".join(deque(log, maxlen=lines)).rstrip("\n")
    except FileNotFoundError:
        return ""


def _ends_within(record: Record, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while record.running():
        if time.monotonic() > deadline:
            return False
        time.sleep(_STEP_SECONDS)
    return True


def _grpc_opens(settings: TensorSettings) -> bool:
    return settings.allow_grpc and _WAITED_FOR["grpc_port"]


def _settled_failures(client: Client) -> list[dict[str, Any]]:
    """Models that failed, once none is loading any more: such a server will not become ready."""
    if not client.live():
        return []
    try:
        entries = client.index()
    except ServeError:
        return []
    if any(entry.get("state") == "LOADING" for entry in entries):
        return []
    return [entry for entry in entries if entry.get("state") == "UNAVAILABLE" and entry.get("reason") != "unloaded"]
