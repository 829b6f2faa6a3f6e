"""Which server a command talks to, and the options that all such commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bident.cli import screen
from bident.errors import Code, ServeError
from bident.local.record import STATE_DIR, Record

if TYPE_CHECKING:
    from bident.client import Client

DEFAULT_URL = "http://127.0.0.1:8000"

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="BIDENT_URL",
        help="The server; without it, the one that 'bident up' started here, the one at BIDENT_HTTP_PORT, "
        f"or {DEFAULT_URL}.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the server's answer as JSON.")]


def connect(url: str | None) -> Client:
    """A client of ``url``, else of the server that ``bident up`` started in this folder, else of the default.

    The default is where ``bident up`` would start a server by the environment.
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
        default, why = default_url()
        screen.note(f"using {default} ({why}not started from this folder)")
        return Client(default)
    if not record.running():
        raise ServeError(Code.UNAVAILABLE, f"{ended_unexpectedly(record)}; start it with 'bident up'")
    return record.client()


def default_url() -> tuple[str, str]:
    """Where a server started elsewhere should be, and which variables say so. Raises BadParameter for no port."""
    from bident.local import ports

    port, address = os.environ.get("BIDENT_HTTP_PORT", ""), os.environ.get("BIDENT_HTTP_ADDRESS", "")
    if port and not (port.isdecimal() and int(port) < 65536):
        raise typer.BadParameter(f"BIDENT_HTTP_PORT is '{port}', and no port")
    named = [name for name, text in (("BIDENT_HTTP_ADDRESS", address), ("BIDENT_HTTP_PORT", port.strip("0"))) if text]
    if not named:
        return DEFAULT_URL, ""
    host, known = ports.local(address) if address else "127.0.0.1", DEFAULT_URL.rpartition(":")[2]
    return f"http://{host}:{port if port.strip('0') else known}", f"{' and '.join(named)}, "


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
    """Where the metrics of ``client``'s server should be: as ``bident up`` noted, else the environment, else 8002."""
    record = Record.read(Path(STATE_DIR))
    if record and record.url == client.url and record.metrics_url:
        return record.metrics_url
    host = f"[{client.host}]" if ":" in client.host else client.host
    port = os.environ.get("BIDENT_METRICS_PORT", "")
    scheme = client.url.partition(":")[0]
    return f"{scheme}://{host}:{port if port and client.url == default_url()[0] else 8002}"
