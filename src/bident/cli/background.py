"""A server in the background: start it and see it become ready, or find out why it did not."""

from __future__ import annotations

import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from bident.cli import standing, text_server
from bident.cli.standing import Entry
from bident.client import Client
from bident.errors import Code, ServeError, invalid_arg
from bident.local import ports, process
from bident.local.record import Record, forget, log_file, previous_log_file
from bident.settings import TABLE, TEXT_TABLE, TensorSettings, TextSettings
from bident.ship.triton.causes import SUMMARY, message_of
from bident.ship.triton.home import VARIABLE as TRITON_HOME
from bident.supervision import unlabelled

_LETTING_GO_SECONDS = 1.0
_STEP_SECONDS = 0.05
_TAIL_LINES = 15
_END_BYTES = 1 << 16
_STARTED = re.compile(r"the \w+ server \(pid (\d+)\) is started")
_GRACE_SECONDS = 10.0
"""How much longer than it promised a server may take to end; 'bident serve' kills before that what is late."""


def serve_command(flags: Sequence[str]) -> list[str]:
    """The command line of the server itself."""
    return [sys.executable, "-m", "bident", "serve", *flags]


@dataclass(frozen=True)
class Plan:
    """What is to be started. ``no_text`` says why there will be no text server; empty where there will be one.

    ``is_ollamas``: a real Ollama has the text server's port, and answers in its place.
    """

    tensor: TensorSettings
    text: TextSettings
    no_text: str = ""
    is_ollamas: bool = False

    @classmethod
    def of(cls, tensor: TensorSettings, text: TextSettings) -> Plan:
        """With free ports in place of 0, so that the servers can be found again."""
        text = replace(text, port=text.port or ports.free_port(text.host.host))
        return cls(with_real_ports(tensor), text, text_server.absence(text), text_server.stands_by(text))

    @property
    def text_url(self) -> str:
        """Where text models are asked, of whomever; empty where nobody answers for them."""
        return "" if self.no_text and not self.is_ollamas else text_server.url_of(self.text, is_ollamas=self.is_ollamas)


Door: TypeAlias = tuple[str, str, int]
"""What is to listen, on which address, at which port."""


def check_ports(plan: Plan) -> None:
    """Raise UNAVAILABLE that names every port the servers want and others hold, and the holders."""
    opens_text = not plan.no_text and not plan.is_ollamas
    check_doors([*tensor_doors(plan.tensor), *([("text", plan.text.host.host, plan.text.port)] if opens_text else ())])


def tensor_doors(settings: TensorSettings) -> list[Door]:
    """The doors of the tensor server that nobody else may have open."""
    doors = (
        ("HTTP", settings.allow_http, settings.http_address, settings.http_port, settings.reuse_http_port),
        ("gRPC", settings.allow_grpc, settings.grpc_address, settings.grpc_port, settings.reuse_grpc_port),
        ("metrics", settings.allow_metrics, settings.metrics_address, settings.metrics_port, False),
    )
    return [(door, address, port) for door, opens, address, port, shared in doors if opens and port and not shared]


def _stays_taken(address: str, port: int) -> bool:
    """Whether a port is in use, and not just about to be free.

    The threads of a process that has ended may keep its ports a moment longer than it is there to be seen.
    """
    deadline = time.monotonic() + _LETTING_GO_SECONDS
    while ports.taken(address, port):
        if ports.owner(port) or time.monotonic() > deadline:
            return True
        time.sleep(_STEP_SECONDS)
    return False


def check_doors(doors: Iterable[Door]) -> None:
    """As :func:`check_ports`, for any doors."""
    conflicts = []
    for door, address, port in doors:
        if _stays_taken(address, port):
            holder = ports.owner(port)
            conflicts.append(f"port {port} ({door}) is in use" + (f" by {holder}" if holder else ""))
    if conflicts:
        raise ServeError(
            Code.UNAVAILABLE,
            f"{'; '.join(conflicts)}. Stop what holds it, or choose another with --http-port, --grpc-port, "
            f"--metrics-port or --text-port",
        )


def with_real_ports(settings: TensorSettings) -> TensorSettings:
    """``settings`` with free ports in place of 0."""
    http = settings.http_port or ports.free_port(settings.http_address)
    grpc = settings.grpc_port or ports.free_port(settings.grpc_address)
    metrics = settings.metrics_port or ports.free_port(settings.metrics_address)
    return replace(settings, http_port=http, grpc_port=grpc, metrics_port=metrics)


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """What ``environ`` holds of the servers' settings, and of where a real Triton is."""
    names = {name for row in (*TABLE, *TEXT_TABLE) for name in (row.environment, row.foreign) if environ.get(name)}
    names |= {TRITON_HOME} & environ.keys()
    return {name: environ[name] for name in sorted(names)}


def start(
    plan: Plan,
    flags: Sequence[str],
    environment: Mapping[str, str],
    state_dir: Path,
    *,
    added: Sequence[str] = (),
) -> tuple[Record, Callable[[], bool]]:
    """Start the servers; their record, and a question: do they still run?

    ``flags`` and ``environment`` (settings by variable) are the user's, ``added`` flags that this command
    decided: only the former are noted down.
    """
    settings = plan.tensor
    state_dir.mkdir(parents=True, exist_ok=True)
    output = _fresh_log(settings, state_dir)
    started = process.spawn(serve_command([*flags, *added]), output, environment)
    log = Path(settings.log_file) if settings.log_file else output
    scheme = "https" if settings.http_use_ssl else "http"
    host, metrics_host = ports.local(settings.http_address), ports.local(settings.metrics_address)
    record = Record(
        pid=started.pid,
        born=process.born(started.pid),
        url=f"{scheme}://{host}:{settings.http_port}",
        metrics_url=f"{scheme}://{metrics_host}:{settings.metrics_port}" if settings.allow_metrics else "",
        address=settings.http_address,
        control_mode=settings.model_control_mode,
        exit_timeout_secs=max(settings.exit_timeout_secs, 0 if plan.no_text else plan.text.exit_timeout_secs),
        log=str(log.resolve()),
        flags=tuple(flags),
        environment=dict(environment),
        api_key_file=_absolute(settings.api_key_file),
        certificate=_absolute(settings.http_server_cert),
        grpc=f"{ports.local(settings.grpc_address)}:{settings.grpc_port}" if settings.allow_grpc else "",
        grpc_over_tls=settings.grpc_use_ssl,
        headers={group.key: group.value for group in settings.http_restricted_api},
        output=str(output.resolve()),
        text_url=plan.text_url,
        text_api_key_file=_absolute(plan.text.api_key_file),
        text_certificate=_absolute(plan.text.server_cert),
    )
    record.write(state_dir)
    return record, lambda: started.poll() is None


def _absolute(path: str) -> str:
    """``path`` as it is found from any folder; empty if it is."""
    return str(Path(path).resolve()) if path else ""


def _fresh_log(settings: TensorSettings, state_dir: Path) -> Path:
    """The file for the server's output, empty; what the last one wrote is kept beside it."""
    output = log_file(state_dir)
    if output.is_file() and output.stat().st_size:
        output.replace(previous_log_file(state_dir))
    said = f"The log goes to {Path(settings.log_file).resolve()}, as --log-file says.\n" if settings.log_file else ""
    output.write_text(said, encoding="utf-8")
    return output


def _passed_over(record: Record, entries: list[Entry]) -> list[Entry]:
    """What was to be loaded, and could not even be read: a real Triton lists it without a state, and logs why."""
    if record.control_mode == "explicit":
        return []
    reason = "its folder could not be read as a model's; 'bident logs' says why"
    return [{**entry, "version": "", "reason": reason} for entry in entries if not entry.get("state")]


def wait_until_ready(
    record: Record,
    runs: Callable[[], bool],
    seconds: float,
    tell: Callable[[list[Entry]], None] = lambda _: None,
) -> list[Entry]:
    """Wait for the servers; the index entries of models that failed, when they serve without them.

    ``tell`` hears again and again what is still loading. Raises UNAVAILABLE with the errors of its log
    (else its end) when it dies, or when ``seconds`` pass.
    """
    client = record.client(timeout=5.0)
    text = record.text_client(timeout=5.0) if record.text_url else None
    deadline = time.monotonic() + seconds
    while runs():
        ready, entries = client.ready(), index(client)
        loading, failed = standing.loading(entries), standing.failed(entries)
        if (ready or (failed and not loading)) and (text is None or text.live()):
            return [*failed, *_passed_over(record, entries)]
        tell(loading)
        if time.monotonic() > deadline:
            what = f" (still loading: {standing.summary(loading)})" if loading else ""
            raise ServeError(
                Code.UNAVAILABLE,
                f"the server (pid {record.pid}) runs but is not ready after {seconds:.0f} s{what}; see 'bident logs', "
                f"wait on with 'bident status', or end it with 'bident down'. The end of its log:\n{tail(record)}",
            )
        time.sleep(_STEP_SECONDS)
    errors = logged_errors(record)
    why = "\n".join(["Why:", *errors]) if errors else f"The end of its log:\n{tail(record)}"
    raise ServeError(Code.UNAVAILABLE, f"the server ended before it was ready. {why}")


def stop(record: Record, state_dir: Path, tell: Callable[[str], None] = lambda _: None) -> bool:
    """End the server: ask, wait for what is in flight, then insist. True when asking was enough.

    ``tell`` hears again and again what the server says it still waits for.
    """
    births = {pid: process.born(pid) for pid in (record.pid, *process.children(record.pid))}
    process.ask_to_stop(record.pid)
    ended = _ends_within(record, record.exit_timeout_secs + _GRACE_SECONDS, lambda: tell(_waits_for(record, births)))
    if not ended:
        for pid, birth in births.items():  # each server has had its time, and must not keep its ports
            if process.alive(pid, birth):
                process.kill(pid)
        if not _ends_within(record, 5):
            raise invalid_arg(f"the server (pid {record.pid}) does not end; end that process yourself")
    forget(state_dir)
    return ended


def tail(record: Record, lines: int = _TAIL_LINES) -> str:
    """The last ``lines`` lines of the server's log."""
    return "\n".join(deque(_log_lines(record), maxlen=lines))


def logged_errors(record: Record, lines: int = _TAIL_LINES) -> list[str]:
    """The first ``lines`` errors that the servers logged, without the time and place of each."""
    printed = [unlabelled(line) for line in _lines_of(record.output)]
    logged = printed if record.log == record.output else [*_log_lines(record), *printed]
    if any(line.startswith("Traceback ") for line in logged):
        return []  # It died of something else than what it logged: a logged traceback would be indented.
    # The process ids tell their lines from those that earlier servers left in a --log-file.
    pids = {str(record.pid), *(match[1] for line in printed if (match := _STARTED.search(line)))}
    errors = re.compile(rf"(?:E\d{{4}} \S+|\S+ E) (?:{'|'.join(pids)})(?:\.\d+)? \S+\] (\".*\")$")
    found = [message_of(match[1]) for line in logged if (match := errors.match(line))]
    if summaries := [message for message in found if message.startswith(SUMMARY)]:
        return [f"  {summaries[-1]}"]
    more = [f"  ... and {len(found) - lines} errors more: 'bident logs' shows them"] if len(found) > lines else []
    return [f"  {message}" for message in found[:lines]] + more


def _log_lines(record: Record) -> list[str]:
    return _lines_of(record.log)


def _lines_of(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _waits_for(record: Record, pids: Iterable[int]) -> str:
    """The models that a stopping server waits for, as the newest line of its log has them; empty where it says none."""
    own = "|".join(map(str, pids))
    waits = re.compile(
        rf" (?:{own})(?:\.\d+)? \S+\] \"?Timeout \d+: Found \d+ model versions that have [^:]*: ([^\"]*)"
    )
    return next((match[1] for line in reversed(_log_end(record)) if (match := waits.search(line))), "")


def _log_end(record: Record) -> list[str]:
    """What was written last, however long the log has become: this is asked for again and again."""
    try:
        with Path(record.log).open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _END_BYTES))
            return log.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []


def _ends_within(record: Record, seconds: float, meanwhile: Callable[[], None] = lambda: None) -> bool:
    deadline = time.monotonic() + seconds
    while record.running():
        if time.monotonic() > deadline:
            return False
        meanwhile()
        time.sleep(_STEP_SECONDS)
    return True


def index(client: Client) -> list[Entry]:
    """The repository index; empty while nobody answers."""
    if not client.live():
        return []
    try:
        return client.index()
    except ServeError:
        return []
