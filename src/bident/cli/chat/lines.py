"""What a user types, line by line: with the arrow keys where the system has them, and a history that is kept."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

_HISTORY = Path("~/.bident/history")
_MOST_LINES = 1000
_PROMPT, _MORE = ">>> ", "... "
QUOTES = '"""'


class Lines:
    """Reads what is typed; with :mod:`readline` where Python has it, as Windows's has not."""

    def __init__(self, history: Path | None = None) -> None:
        self._path = (history or _HISTORY).expanduser()
        self._readline = _import_readline()
        self.keeps_history = True
        if self._readline is not None:
            with contextlib.suppress(OSError):
                self._readline.read_history_file(self._path)
            self._readline.set_history_length(_MOST_LINES)
            self._readline.set_auto_history(False)

    def read(self) -> str:
        """The next line; several within three quotes. Raises EOFError and KeyboardInterrupt."""
        typed = input(_PROMPT)
        self._remember(typed)
        return self.go_on(typed)

    def go_on(self, typed: str) -> str:
        """``typed`` with the lines that belong to it: those up to the end of the three quotes it begins."""
        before, opened, rest = typed.partition(QUOTES)
        if not opened or (before and not before.endswith(" ")):
            return typed
        lines = [rest]
        while QUOTES not in lines[-1]:
            lines.append(input(_MORE))
            self._remember(lines[-1])
        lines[-1] = lines[-1].partition(QUOTES)[0]
        return before + "\n".join(lines).strip("\n")

    def _remember(self, line: str) -> None:
        if self._readline is not None and self.keeps_history and line.strip():
            self._readline.add_history(line)

    def save(self) -> None:
        """Keep the history for the next time, where only its owner can read it."""
        if self._readline is None or not self.keeps_history:
            return
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.touch(mode=0o600)
            self._readline.write_history_file(self._path)
            self._path.chmod(0o600)


def _import_readline() -> Any:
    try:
        import readline
    except ImportError:
        return None
    return readline
