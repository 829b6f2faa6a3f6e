"""Which server a command talks to, and the options that all such commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bident.cli.record import STATE_DIR, Record

if TYPE_CHECKING:
    from bident.client import Client

DEFAULT_URL = "http://127.0.0.1:8000"

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="BIDENT_URL",
        help=f"The server; without it, the one that 'bident up' started here, or {DEFAULT_URL}.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the server's answer as JSON.")]


def connect(url: str | None) -> Client:
    """A client of ``url``, else of the server that ``bident up`` started in this folder, else of the default."""
    from bident.client import Client

    if url:
        return Client(url)
    record = Record.read(Path(STATE_DIR))
    return Client(record.url if record and record.running() else DEFAULT_URL)


def metrics_url(client: Client) -> str:
    """Where the metrics of ``client``'s server should be: what ``bident up`` noted, else Triton's port."""
    record = Record.read(Path(STATE_DIR))
    if record and record.url == client.url and record.metrics_url:
        return record.metrics_url
    host = f"[{client.host}]" if ":" in client.host else client.host
    return f"http://{host}:8002"
