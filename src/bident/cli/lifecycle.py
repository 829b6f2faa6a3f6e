"""``bident up``, ``down`` and ``restart``: the servers in the background."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bident.cli import screen, standing
from bident.cli.watch import StateDir, note_failures, show_urls
from bident.errors import ServeError, invalid_arg
from bident.local.record import STATE_DIR, Record, forget

if TYPE_CHECKING:
    from rich.status import Status

    from bident.cli.background import Plan

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
    """Start the servers in the background and wait until they are ready.

    Further flags are those of 'bident serve': tritonserver's, and the text server's with --text- in front.

    A model that fails is named, and the others are served; --exit-on-error=true ends the server instead.
    """
    from bident.cli import background

    flags, environment = _flags(context, repo), background.variables(os.environ)
    record = Record.read(state_dir)
    if record and record.running():
        screen.show(f"Already up (pid {record.pid}); 'bident down' stops it.")
        show_urls(record)
        _note_ignored(flags, environment, record)
        return
    if record:
        screen.note(f"The last server (pid {record.pid}) ended unexpectedly; its log is kept as serve.log.1.")
    _start(flags, environment, _settle(flags, environment), state_dir, wait)


def restart(
    context: typer.Context,
    repo: Repositories = None,
    state_dir: StateDir = Path(STATE_DIR),
    wait: Wait = 120.0,
) -> None:
    """Stop the servers and start them again: with the flags they were given, or with those given here instead.

    BIDENT_* settings of its environment are kept, too, unless the environment here has others.
    """
    from bident.cli import background

    record = Record.read(state_dir)
    given = background.variables(os.environ)
    flags = _flags(context, repo) or (record.flags_under(given) if record else [])
    environment = {**(record.environment if record else {}), **given}
    # What is wrong with the new flags must show while the old server still runs.
    plan = _settle(flags, environment)
    if record and record.running():
        down(state_dir)
    _start(flags, environment, plan, state_dir, wait)


def _flags(context: typer.Context, repositories: list[Path] | None) -> list[str]:
    from bident.settings import canonical_flags

    return canonical_flags([*(f"--model-repository={path}" for path in repositories or ()), *context.args])


def _note_ignored(flags: list[str], environment: dict[str, str], record: Record) -> None:
    """Say which of ``flags`` and ``environment`` the running server was not given, and how it would get them."""
    new = [flag for flag in flags if flag not in record.flags]
    command = f"bident restart {shlex.join(record.flags_with(flags))}" if new else "bident restart"
    new += [f"{name}={text}" for name, text in environment.items() if record.environment.get(name) != text]
    if new:
        screen.note(f"It runs without {' '.join(new)}, ignored here: '{command}' applies that.")


def _settle(flags: list[str], environment: dict[str, str]) -> Plan:
    """What ``flags`` and ``environment`` start in this folder. Raises what no server could start with."""
    from bident.cli import background
    from bident.cli.serve import DEFAULTS, config_file
    from bident.model import near_miss
    from bident.settings import parse_both_args

    defaults = {**DEFAULTS, "exit_on_error": "false"}
    settings, text = parse_both_args(flags, environment, config_file(), defaults)
    if not settings.allow_http:
        raise invalid_arg("'bident up' waits on the HTTP door; use 'bident serve' to run with --allow-http=false")
    if settings.http_use_ssl_mutual:
        raise invalid_arg(
            "'bident up' waits on the HTTP door, and has no certificate to show it; use 'bident serve' to run with "
            "--http-use-ssl-mutual"
        )
    for folder in settings.model_repository:
        if not folder.is_dir():
            raise invalid_arg(
                f"there is no model repository at {folder}; make one with 'bident zoo build iris_sklearn' or "
                "'bident add FILE', or name yours with --repo"
            )
        if mistaken := near_miss.taken_for_repository(folder):
            raise invalid_arg(f"--repo {folder}: {mistaken}")
    traces = (settings.trace_config if settings.engine == "bident" else (), text.trace_config)
    for trace_config in filter(None, traces):
        from bident.observe.trace_settings import TraceStart

        TraceStart.parse(trace_config).check_installed()
    return background.Plan.of(settings, text)


def _start(flags: list[str], environment: dict[str, str], plan: Plan, state_dir: Path, wait: float) -> None:
    """Start, wait, and show where the server is and what failed; exit code 1 if something did."""
    from bident.cli import background

    background.check_ports(plan)
    last = Record.read_last(state_dir)
    doors = ("http", "grpc", "metrics")
    added = [f"--{door}-port={getattr(plan.tensor, f'{door}_port')}" for door in doors]
    added += [f"--exit-on-error={str(plan.tensor.exit_on_error).lower()}", f"--text-port={plan.text.port}"]
    record, runs = background.start(plan, flags, environment, state_dir, added=added)
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
    if plan.is_ollamas:
        screen.note(f"A real Ollama answers at {plan.text_url} and is used for text models.")
    elif plan.no_text:
        screen.note(f"No text server is started: {plan.no_text}.")
    if last and last.url != record.url:
        screen.note(f"The address is another one than before: {record.url}, and it was {last.url}{_said_by(last)}.")
    note_failures(record, failed)
    if failed:
        raise typer.Exit(1)


def _said_by(last: Record) -> str:
    """What had given ``last`` its port: a flag or a variable that may be missing now."""
    port = [flag for flag in last.flags if flag.startswith("--http-port=")]
    port += [f"{name}={text}" for name, text in last.environment.items() if name == "BIDENT_HTTP_PORT"]
    return f" ({port[0]})" if port else ""


def _progress(starting: str, loading: list[standing.Entry]) -> str:
    return f"{starting}, loading {screen.text(standing.summary(loading))}" if loading else starting


def down(state_dir: StateDir = Path(STATE_DIR)) -> None:
    """Stop the servers that 'bident up' started: what is in flight is finished first."""
    from bident.cli import background

    record = Record.read(state_dir)
    if record is None or not record.running():
        forget(state_dir)
        why = f"the server (pid {record.pid}) had ended unexpectedly, see 'bident logs'" if record else ""
        screen.show(f"Nothing to stop: {why or 'no server was started from here'}.")
        return
    stopping = f"Stopping (pid {record.pid}); requests in flight are finished first"
    with screen.console(stderr=True).status(stopping) as shown:
        politely = background.stop(record, state_dir, _telling(stopping, record, shown))
    if politely:
        screen.show(f"Stopped (pid {record.pid}).")
    else:
        screen.show(f"Killed (pid {record.pid}): it did not end when asked, well after its --exit-timeout-secs.")


def _telling(stopping: str, record: Record, shown: Status) -> Callable[[str], None]:
    """Shows what a stopping server waits for; in a line of its own where no terminal shows a status."""
    said = ""

    def tell(busy: str) -> None:
        nonlocal said
        if busy == said:
            return
        said = busy
        limit = f"at most {record.exit_timeout_secs} s, --exit-timeout-secs"
        shown.update(f"{stopping}: {screen.text(busy)} ({limit})")
        if not shown.console.is_terminal:
            screen.note(f"{stopping}: {busy} ({limit})")

    return tell
