"""``bident up``, ``down`` and ``restart``: a server in the background."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bident.cli import screen, standing
from bident.cli.record import STATE_DIR, Record, forget
from bident.cli.watch import StateDir, note_failures, show_urls
from bident.errors import ServeError, invalid_arg

if TYPE_CHECKING:
    from bident.settings import TensorSettings

Repositories = Annotated[
    list[Path] | None,
    typer.Option("--repo", help="A model repository; repeat it for several.", show_default="./model_repository"),
]
Wait = Annotated[
    float, typer.Option(help="Seconds to wait for it to become ready; after that it goes on loading by itself.", min=0)
]


def up(
    context: typer.Context,
    repo: Repositories = None,
    state_dir: StateDir = Path(STATE_DIR),
    wait: Wait = 120.0,
) -> None:
    """Start the server in the background and wait until it is ready.

    Everything else on the command line goes to 'bident serve', which takes tritonserver's flags.

    A model that fails is named, and the others are served; --exit-on-error=true ends the server instead.
    """
    flags = _flags(context, repo)
    record = Record.read(state_dir)
    if record and record.running():
        screen.show(f"Already up (pid {record.pid}); 'bident down' stops it.")
        show_urls(record)
        _note_ignored(flags, record)
        return
    if record:
        screen.note(f"The last server (pid {record.pid}) ended unexpectedly; its log is kept as serve.log.1.")
    _start(flags, _settle(flags), state_dir, wait)


def restart(
    context: typer.Context,
    repo: Repositories = None,
    state_dir: StateDir = Path(STATE_DIR),
    wait: Wait = 120.0,
) -> None:
    """Stop the server and start it again: with the flags it was given, or with those given here instead."""
    record = Record.read(state_dir)
    flags = _flags(context, repo) or list(record.flags if record else ())
    # What is wrong with the new flags must show while the old server still runs.
    settings = _settle(flags)
    if record and record.running():
        down(state_dir)
    _start(flags, settings, state_dir, wait)


def _flags(context: typer.Context, repositories: list[Path] | None) -> list[str]:
    from bident.settings import canonical_flags

    return canonical_flags([*(f"--model-repository={path}" for path in repositories or ()), *context.args])


def _note_ignored(flags: list[str], record: Record) -> None:
    """Say which of ``flags`` the running server was not given, and how it would get them."""
    new = [flag for flag in flags if flag not in record.flags]
    if new:
        screen.note(
            f"It runs without {' '.join(new)}, ignored here: 'bident restart {shlex.join(record.flags_with(flags))}' "
            "applies that."
        )


def _settle(flags: list[str]) -> TensorSettings:
    """The settings that ``flags`` give in this folder. Raises what a server could not start with."""
    from bident.cli import background
    from bident.cli.serve import DEFAULTS, config_file
    from bident.settings import parse_tensor_args

    defaults = {**DEFAULTS, "exit_on_error": "false"}
    settings = parse_tensor_args(flags, os.environ, config_file(), defaults)
    if not settings.allow_http:
        raise invalid_arg("'bident up' waits on the HTTP door; use 'bident serve' to run with --allow-http=false")
    for folder in settings.model_repository:
        if not folder.is_dir():
            raise invalid_arg(
                f"there is no model repository at {folder}; make one with 'bident zoo build iris_sklearn' or "
                "'bident add FILE', or name yours with --repo"
            )
    return background.with_real_ports(settings)


def _start(flags: list[str], settings: TensorSettings, state_dir: Path, wait: float) -> None:
    """Start, wait, and show where the server is and what failed; exit code 1 if something did."""
    from bident.cli import background

    background.check_ports(settings)
    added = [f"--http-port={settings.http_port}", f"--metrics-port={settings.metrics_port}"]
    added.append(f"--exit-on-error={str(settings.exit_on_error).lower()}")
    record, runs = background.start(settings, flags, state_dir, added=added)
    failed: list[standing.Entry] = []
    starting = f"Starting the server (pid {record.pid})"
    try:
        with screen.console(stderr=True).status(starting) as shown:
            failed = background.wait_until_ready(
                record, runs, wait, lambda loading: shown.update(_progress(starting, loading))
            )
    except ServeError:
        if not runs():
            forget(state_dir)
        raise
    screen.show(f"Up (pid {record.pid}); log in {screen.text(record.log)}")
    show_urls(record)
    note_failures(record, failed)
    if failed:
        raise typer.Exit(1)


def _progress(starting: str, loading: list[standing.Entry]) -> str:
    return f"{starting}, loading {screen.text(standing.summary(loading))}" if loading else starting


def down(state_dir: StateDir = Path(STATE_DIR)) -> None:
    """Stop the server that 'bident up' started: what is in flight is finished first."""
    from bident.cli import background

    record = Record.read(state_dir)
    if record is None or not record.running():
        forget(state_dir)
        why = f"the server (pid {record.pid}) had ended unexpectedly, see 'bident logs'" if record else ""
        screen.show(f"Nothing to stop: {why or 'no server was started from here'}.")
        return
    with screen.console(stderr=True).status(f"Stopping (pid {record.pid}); requests in flight are finished first"):
        politely = background.stop(record, state_dir)
    if politely:
        screen.show(f"Stopped (pid {record.pid}).")
    else:
        screen.show(f"Killed (pid {record.pid}): it did not end when asked, well after its --exit-timeout-secs.")
