"""Which server a command talks to, and the options that all such commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bident.cli import screen
from bident.cli.record import STATE_DIR, Record
from bident.errors import Code, ServeError

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
    """A client of ``url``, else of the server that ``bident up`` started in this folder, else of the default.

    Raises UNAVAILABLE when this folder's server has died: whoever else listens is not meant.
    """
    from bident.client import Client

    if url:
        try:
            return Client(url)
        except ServeError as error:
            raise typer.BadParameter(error.message) from None
    record = Record.read(Path(STATE_DIR))
    if record is None:
        screen.note(f"using {DEFAULT_URL} (not started from this folder)")
        return Client(DEFAULT_URL)
    if not record.running():
        raise ServeError(Code.UNAVAILABLE, f"{ended_unexpectedly(record)}; start it with 'bident up'")
    return Client(record.url)


def ended_unexpectedly(record: Record) -> str:
    """Says so of the server of ``record``, which nobody stopped and which does not run."""
    return f"the server of this folder (pid {record.pid}) does not run: it ended unexpectedly, see 'bident logs'"


def control_mode(url: str) -> str:
    """The model control mode of the server at ``url``; empty where this folder did not start it."""
    record = Record.read(Path(STATE_DIR))
    return record.control_mode if record and record.url == url else ""


def cure(mode: str, name: str = "NAME") -> str:
    """How a model whose folder was mended gets loaded under ``mode``."""
    return {
        "poll": "mend its folder, it is picked up by itself",
        "none": "mend its folder, then 'bident restart'",
        "explicit": f"mend its folder, then 'bident load {name}'",
    }.get(mode, f"mend its folder, then 'bident load {name}' (a server in explicit mode)")


def metrics_url(client: Client) -> str:
    """Where the metrics of ``client``'s server should be: what ``bident up`` noted, else Triton's port."""
    record = Record.read(Path(STATE_DIR))
    if record and record.url == client.url and record.metrics_url:
        return record.metrics_url
    host = f"[{client.host}]" if ":" in client.host else client.host
    return f"http://{host}:8002"
