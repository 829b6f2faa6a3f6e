"""What ``bident up`` notes down about the server it started, for the commands that come after it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bident.cli import process

STATE_DIR = ".bident"


@dataclass(frozen=True)
class Record:
    """A server in the background. ``born`` tells its process from a later one with the same id.

    ``flags`` are those it was given, for ``bident restart``; not what ``bident up`` added to them.
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

    @classmethod
    def read(cls, state_dir: Path) -> Record | None:
        """What ``state_dir`` says, or None where there is nothing or nothing legible."""
        try:
            facts = json.loads(_file(state_dir).read_text(encoding="utf-8"))
            return cls(**{**facts, "flags": tuple(facts.get("flags", ()))})
        except (OSError, ValueError, TypeError, AttributeError):
            return None

    def write(self, state_dir: Path) -> None:
        """Keep this record, and the bare process id beside it for scripts."""
        _file(state_dir).write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")
        pid_file(state_dir).write_text(f"{self.pid}\n", encoding="utf-8")

    def flags_with(self, flags: Sequence[str]) -> tuple[str, ...]:
        """Its flags with ``flags`` (``--name=value`` words) in place of those of the same name."""
        names = {flag.partition("=")[0] for flag in flags}
        return (*(flag for flag in self.flags if flag.partition("=")[0] not in names), *flags)

    def running(self) -> bool:
        """Whether that very process still runs."""
        return process.alive(self.pid, self.born)


def forget(state_dir: Path) -> None:
    """Remove the record; the log stays."""
    _file(state_dir).unlink(missing_ok=True)
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
