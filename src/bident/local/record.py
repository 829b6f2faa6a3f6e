"""What ``bident up`` notes down about the server it started, for the commands that come after it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bident.local import process

if TYPE_CHECKING:
    from bident.client import Client, TextClient

STATE_DIR = ".bident"


@dataclass(frozen=True)
class Record:
    """A server in the background. ``born`` tells its process from a later one with the same id.

    ``flags`` are those it was given, for ``bident restart``; not what ``bident up`` added to them.
    ``environment`` holds the variables that gave it settings.
    """

    pid: int
    born: float
    url: str
    metrics_url: str
    address: str
    control_mode: str
    exit_timeout_secs: int
    log: str
    flags: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    api_key_file: str = ""
    certificate: str = ""
    """That of its HTTP door, where it speaks TLS."""
    grpc: str = ""
    """``HOST:PORT`` of its gRPC door, as clients on this machine write it; empty where it has none."""
    grpc_over_tls: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    """Those that its restricted APIs want."""
    output: str = ""
    """Where it prints, whatever ``log`` is."""
    text_url: str = ""
    """Of the text server beside it, or of the Ollama that is used in its place; empty where there is neither."""
    text_api_key_file: str = ""
    text_certificate: str = ""
    """Its certificate, where it speaks TLS."""

    @classmethod
    def read(cls, state_dir: Path) -> Record | None:
        """What ``state_dir`` says, or None where there is nothing or nothing legible."""
        return cls._read(_file(state_dir))

    @classmethod
    def read_last(cls, state_dir: Path) -> Record | None:
        """The same; where no server was started since, of the one that :func:`forget` has put away."""
        return cls.read(state_dir) or cls._read(_last_file(state_dir))

    @classmethod
    def _read(cls, path: Path) -> Record | None:
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            return cls(**{**facts, "flags": tuple(facts.get("flags", ()))})
        except (OSError, ValueError, TypeError, AttributeError):
            return None

    def write(self, state_dir: Path) -> None:
        """Keep this record, and the bare process id beside it for scripts."""
        # It holds the flags, among them the words of restricted APIs: nobody else may read it.
        _file(state_dir).touch(mode=0o600)
        _file(state_dir).chmod(0o600)
        _file(state_dir).write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")
        pid_file(state_dir).write_text(f"{self.pid}\n", encoding="utf-8")

    def flags_with(self, flags: Sequence[str]) -> tuple[str, ...]:
        """Its flags with ``flags`` (``--name=value`` words) in place of those of the same name."""
        names = {flag.partition("=")[0] for flag in flags}
        return (*(flag for flag in self.flags if flag.partition("=")[0] not in names), *flags)

    def flags_under(self, environment: Mapping[str, str]) -> list[str]:
        """Its flags, without those whose setting ``environment`` gives anew, and otherwise than it was given then."""
        anew = {name for name, text in environment.items() if self.environment.get(name) != text}
        return [flag for flag in self.flags if _variable(flag) not in anew]

    def client(self, timeout: float = 300.0) -> Client:
        """A client of this server. Unless the environment has others, it shows what the server was started with: the
        first of its keys, and the headers of its restricted APIs.
        """
        from bident.client import Client, Credentials

        given = Credentials.from_environment()
        key = given.api_key or _first_key(self.api_key_file)
        more = tuple({**self.headers, **dict(given.more)}.items())
        shown = replace(given, api_key=key, ca=given.ca or self.certificate, pinned=not given.ca, more=more)
        return Client(self.url, timeout, shown)

    def text_client(self, timeout: float = 300.0) -> TextClient:
        """A client of the text server beside it, which likewise shows the first of that server's keys."""
        from bident.client import Credentials, TextClient

        given = Credentials.from_environment()
        key = given.api_key or _first_key(self.text_api_key_file)
        ca = given.ca or self.text_certificate
        return TextClient(self.text_url, timeout, replace(given, api_key=key, ca=ca, pinned=not given.ca))

    def running(self) -> bool:
        """Whether that very process still runs."""
        return process.alive(self.pid, self.born)


def _first_key(path: str) -> str:
    """The first key in a file of API keys; empty where it cannot be read, and the server will say what it wants."""
    try:
        lines = Path(path).read_text(encoding="ascii").splitlines() if path else []
    except (OSError, ValueError):
        return ""
    return next((word for line in lines if (word := line.strip()) and not word.startswith("#")), "")


def forget(state_dir: Path) -> None:
    """Put the record away: nothing is taken to run any more. The log stays."""
    if _file(state_dir).is_file():
        _file(state_dir).replace(_last_file(state_dir))
    pid_file(state_dir).unlink(missing_ok=True)


def pid_file(state_dir: Path) -> Path:
    """Where the process id is, as plain text."""
    return state_dir / "serve.pid"


def log_file(state_dir: Path) -> Path:
    """Where the server's output goes."""
    return state_dir / "serve.log"


def previous_log_file(state_dir: Path) -> Path:
    """Where the output of the server before that is."""
    return state_dir / "serve.log.1"


def _file(state_dir: Path) -> Path:
    return state_dir / "serve.json"


def _last_file(state_dir: Path) -> Path:
    return state_dir / "serve.json.1"


def _variable(flag: str) -> str:
    """The environment variable that gives the setting of ``flag``."""
    return "BIDENT_" + flag.partition("=")[0].removeprefix("--").upper().replace("-", "_")
