"""``bident up``, ``down``, ``status`` and ``logs``: a server in the background."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from bident.cli import screen
from bident.cli.record import STATE_DIR, Record, forget
from bident.errors import Code, ServeError, invalid_arg

if TYPE_CHECKING:
    from bident.client import Client

StateDir = Annotated[Path, typer.Option("--state-dir", help="Folder of the process id, notes and log.")]
_FOLLOW_SECONDS = 0.2


def up(
    context: typer.Context,
    repo: Annotated[Path | None, typer.Option(help="The model repository.", show_default="./model_repository")] = None,
    state_dir: StateDir = Path(STATE_DIR),
    wait: Annotated[float, typer.Option(help="Seconds it may take to become ready.")] = 120.0,
) -> None:
    """Start the server in the background and wait until it is ready.

    Everything else on the command line goes to 'bident serve', which takes tritonserver's flags.
    """
    record = Record.read(state_dir)
    if record and record.running():
        screen.show(f"Already up (pid {record.pid}); 'bident down' stops it.")
        _show_urls(record)
        return
    failed = _start(list(context.args), repo, state_dir, wait)
    if failed:
        screen.note("The server runs, but not every model does:")
        for line in failed:
            screen.note(f"  {line}")
        screen.note("Mend the folder, then 'bident down' and 'bident up'.")
        raise typer.Exit(1)


def _start(flags: list[str], repo: Path | None, state_dir: Path, wait: float) -> list[str]:
    """Start and wait; the models that failed, one line each."""
    from bident.cli import background
    from bident.cli.serve import config_file
    from bident.settings import parse_tensor_args

    settings = parse_tensor_args(flags, os.environ, config_file())
    if repo is not None or not settings.model_repository:
        flags = [f"--model-repository={repo or Path('model_repository')}", *flags]
        settings = parse_tensor_args(flags, os.environ, config_file())
    if not settings.allow_http:
        raise invalid_arg("'bident up' waits on the HTTP door; use 'bident serve' to run with --allow-http=false")
    for folder in settings.model_repository:
        if not folder.is_dir():
            raise invalid_arg(
                f"there is no model repository at {folder}; make one with 'bident zoo build iris_sklearn' or "
                "'bident add FILE', or name yours with --repo"
            )
    settings = background.with_real_ports(settings)
    background.check_ports(settings)
    flags += [f"--http-port={settings.http_port}", f"--metrics-port={settings.metrics_port}"]
    record, runs = background.start(settings, flags, state_dir)
    try:
        with screen.console(stderr=True).status(f"Starting the server (pid {record.pid}), loading models"):
            failed = background.wait_until_ready(record, runs, wait)
    except ServeError:
        if not runs():
            forget(state_dir)
        raise
    screen.show(f"Up (pid {record.pid}); log in {record.log}")
    _show_urls(record)
    return [f"{entry['name']} {entry.get('version', '')}: {entry.get('reason', '')}" for entry in failed]


def _show_urls(record: Record) -> None:
    from bident.cli import ports

    port = record.url.rpartition(":")[2]
    lines = screen.table("from", "URL")
    lines.add_row("this machine", record.url)
    docker = f"http://host.docker.internal:{port}"
    if ports.is_loopback(record.address):
        lines.add_row(
            "Docker, LAN", f"not reachable: bound to {record.address} only; 'bident up --http-address=0.0.0.0'"
        )
        lines.add_row("", f"opens it to every network, and to containers as {docker}")
    else:
        lines.add_row("Docker", docker)
        lan = ports.lan_address() if ports.is_everywhere(record.address) else record.address
        lines.add_row("LAN", f"http://{lan}:{port}" if lan else "this machine has no network address")
    if record.metrics_url:
        lines.add_row("metrics", f"{record.metrics_url}/metrics")
    screen.show(lines)


def down(state_dir: StateDir = Path(STATE_DIR)) -> None:
    """Stop the server that 'bident up' started: what is in flight is finished first."""
    from bident.cli import background

    record = Record.read(state_dir)
    if record is None or not record.running():
        forget(state_dir)
        screen.show("Nothing to stop: no server was started from here.")
        return
    with screen.console(stderr=True).status(f"Stopping (pid {record.pid}); requests in flight are finished first"):
        politely = background.stop(record, state_dir)
    if politely:
        screen.show(f"Stopped (pid {record.pid}).")
    else:
        screen.show(f"Killed (pid {record.pid}): it did not end when asked, well after its --exit-timeout-secs.")


def status(
    state_dir: StateDir = Path(STATE_DIR),
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Whether the server of this folder runs and is ready. Exit code 0 when it is, else 1."""
    from bident.client import Client

    record = Record.read(state_dir)
    running = record is not None and record.running()
    client = Client(record.url, timeout=5.0) if record and running else None
    ready = client is not None and client.ready()
    if as_json:
        facts: dict[str, Any] = {"running": running, "ready": ready}
        if record and running:
            facts |= {"pid": record.pid, "url": record.url, "metrics_url": record.metrics_url, "log": record.log}
        screen.show_json(facts)
    elif record and running:
        models = _count_ready(client) if client else ""
        screen.show(f"Up (pid {record.pid}), {'ready' if ready else 'not ready'}{models}; log in {record.log}")
        _show_urls(record)
    else:
        screen.show("Down. Start it with 'bident up'.")
    if not ready:
        raise typer.Exit(1)


def _count_ready(client: Client) -> str:
    try:
        entries = client.index()
    except ServeError:
        return ""
    ready = sum(entry.get("state") == "READY" for entry in entries)
    return f", {ready} of {len({entry['name'] for entry in entries})} models loaded"


def logs(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is written from now on.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", help="How many lines from the end.", min=0)] = 50,
    state_dir: StateDir = Path(STATE_DIR),
) -> None:
    """Show the log of the server that 'bident up' started."""
    from bident.cli.record import log_file

    path = log_file(state_dir)
    if not path.is_file():
        raise ServeError(Code.NOT_FOUND, f"there is no log at {path}; 'bident up' starts a server that writes one")
    with path.open(encoding="utf-8", errors="replace") as log:
        for line in _last(log, lines):
            print(line, end="")
        try:
            while follow:
                for line in log:
                    print(line, end="", flush=True)
                time.sleep(_FOLLOW_SECONDS)
        except KeyboardInterrupt:
            return


def _last(log: TextIO, lines: int) -> Iterator[str]:
    from collections import deque

    return iter(deque(log, maxlen=lines))
