"""``bident status`` and ``logs``: how the servers in the background are doing, and what they say."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TextIO

import typer

from bident.cli import screen, standing
from bident.errors import Code, ServeError
from bident.local.record import STATE_DIR, Record, log_file

StateDir = Annotated[Path, typer.Option("--state-dir", help="Folder of the process id, notes and log.")]
_FOLLOW_SECONDS = 0.2


def status(
    state_dir: StateDir = Path(STATE_DIR),
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Whether the servers of this folder run and are ready. Exit code 0 when they are, else 1."""
    record = Record.read(state_dir)
    if record is None or not record.running():
        _show_down(record, as_json)
        raise typer.Exit(1)
    from bident.cli.background import index

    client = record.client(timeout=5.0)
    is_ready, entries = client.ready(), index(client)
    loading, failed = standing.loading(entries), standing.failed(entries)
    text_ready = not record.text_url or record.text_client(timeout=5.0).live()
    ready = is_ready and text_ready
    if as_json:
        facts = {"running": True, "ready": ready, "pid": record.pid, "url": record.url}
        facts |= {"grpc": record.grpc, "metrics_url": record.metrics_url, "log": record.log}
        facts |= {"text_url": record.text_url, "loading": loading, "failed": failed}
        screen.show_json(facts)
    else:
        state = "ready" if ready else "not ready"
        screen.show(f"Up (pid {record.pid}), {state}{_count_ready(entries)}; log in {screen.text(record.log)}")
        show_urls(record)
        if loading:
            screen.note(f"Loading: {standing.summary(loading)}")
        note_failures(record, [] if loading else failed)
        if not text_ready:
            screen.note(f"The text server does not answer at {record.text_url}; 'bident logs' says why.")
    if not ready:
        raise typer.Exit(1)


def _show_down(record: Record | None, as_json: bool) -> None:
    if as_json:
        screen.show_json({"running": False, "ready": False, "ended_unexpectedly": record is not None})
    elif record is None:
        screen.show("Down. Start it with 'bident up'.")
    else:
        from bident.cli.target import ended_unexpectedly

        screen.show(f"Down: {ended_unexpectedly(record)}. Start it with 'bident up'.")


def note_failures(record: Record, failed: list[standing.Entry]) -> None:
    """Name the models that failed, why, and what to do in the server's control mode."""
    from bident.cli.target import cure

    if not failed:
        return
    screen.note("Models that are not available:")
    for line in standing.lines(failed):
        screen.note(line)
    screen.note(
        f"The server stays up. 'bident doctor' says more about them; to cure a model: {cure(record.control_mode)}."
    )


def show_urls(record: Record) -> None:
    """The addresses of a server, seen from here, from containers and from the network."""
    from bident.local import ports
    from bident.settings import security

    port = record.url.rpartition(":")[2]
    lines = screen.table("from", "URL")
    lines.add_row("this machine", record.url)
    scheme = record.url.partition(":")[0]
    docker = f"{scheme}://host.docker.internal:{port}"
    if security.is_loopback(record.address):
        lines.add_row(
            "Docker, LAN",
            f"not reachable: bound to {record.address} only; 'bident up --http-address=0.0.0.0 --api-key-file=FILE'",
        )
        lines.add_row("", f"opens it to every network, and to containers as {docker}")
    else:
        lines.add_row("Docker", docker)
        lan = ports.lan_address() if ports.is_everywhere(record.address) else record.address
        lines.add_row("LAN", f"{scheme}://{lan}:{port}" if lan else "this machine has no network address")
    if record.grpc:
        lines.add_row("gRPC", f"{record.grpc}{' over TLS' if record.grpc_over_tls else ''}")
    if record.metrics_url:
        lines.add_row("metrics", f"{record.metrics_url}/metrics")
    if record.text_url:
        lines.add_row("text", f"{record.text_url} (Ollama), {record.text_url}/v1 (OpenAI)")
    screen.show(lines)


def _count_ready(entries: list[standing.Entry]) -> str:
    if not entries:
        return ""
    ready = len({entry["name"] for entry in entries if entry.get("state") == "READY"})
    return f", {ready} of {len({entry['name'] for entry in entries})} models loaded"


def logs(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is written from now on.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", help="How many lines from the end.", min=0)] = 50,
    state_dir: StateDir = Path(STATE_DIR),
) -> None:
    """Show the log of the servers that 'bident up' started. The one before it is .bident/serve.log.1."""
    record = Record.read(state_dir)
    path = Path(record.log) if record else log_file(state_dir)
    if not path.is_file():
        # A server that died before it opened its --log-file has said why where its output goes.
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
