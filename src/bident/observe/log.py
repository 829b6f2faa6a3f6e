"""The server's log, in the two formats that Triton has."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import textwrap
import time
from typing import TextIO

from bident.observe.clock import utc

_LETTERS = {logging.DEBUG: "V", logging.INFO: "I", logging.WARNING: "W", logging.ERROR: "E", logging.CRITICAL: "F"}

_UNTAMED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""C0 and C1 controls, line and paragraph separators, and what turns the direction of writing."""


class TritonFormatter(logging.Formatter):
    """``I1130 13:18:58.662133 6899 lifecycle.py:41] "message"``, or with an ISO 8601 time in front."""

    def __init__(self, *, iso8601: bool = False, escape: bool = True, process: str = "") -> None:
        """``escape``: messages are one line each, in JSON's quotes; otherwise further lines are indented.

        ``process`` stands where the process id would.
        """
        super().__init__()
        self.process = process
        self._iso8601 = iso8601
        self._escape = escape

    def format(self, record: logging.LogRecord) -> str:
        letter = _LETTERS.get(record.levelno, "I")
        place = f"{self.process or record.process} {record.filename}:{record.lineno}]"
        if self._iso8601:
            head = f"{utc(record.created)} {letter} {place}"
        else:
            microseconds = int(record.created % 1 * 1_000_000)
            head = f"{letter}{time.strftime('%m%d %H:%M:%S', time.gmtime(record.created))}.{microseconds:06d} {place}"
        # Escaped as JSON, or at least indented: a message that carries a client's bytes cannot forge a line of its own.
        message = record.message = record.getMessage()  # as formatters leave it to who looks at records afterwards
        message = json.dumps(message, ensure_ascii=False) if self._escape else message.rstrip().replace("\n", "\n  ")
        line = f"{head} {tame(message)}"
        if record.exc_info:
            # Escaped and indented for the same reason: its last line repeats what the exception says.
            line += "\n" + textwrap.indent(tame(self.formatException(record.exc_info)), "  ", lambda _: True)
        return line


def tame(text: str) -> str:
    """``text`` with everything escaped that a terminal obeys or that ends a line, but line feeds and tabs."""
    return _UNTAMED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class _Log(logging.StreamHandler[TextIO]):
    """Where Bident's log goes; handlers that others have added (pytest does) are theirs."""


def configure(
    *, verbose: int, info: bool, warning: bool, error: bool, style: str, path: str, process: str = ""
) -> None:
    """Send Bident's log to ``path`` (standard error if empty), from the lowest level that is on.

    As in Triton, ``TRITON_SERVER_ESCAPE_LOG_MESSAGES=0`` in the environment leaves messages of several lines as
    they are. Raises OSError when the file cannot be opened.
    """
    stream: TextIO = sys.stderr
    if path:
        stream = open(path, "a", encoding="utf-8", errors="backslashreplace", buffering=1)  # noqa: SIM115, PTH123
    root = logging.getLogger("bident")
    root.handlers[:] = [_Log(stream)]
    root.propagate = False
    adjust(verbose=verbose, info=info, warning=warning, error=error, style=style, process=process)


def adjust(*, verbose: int, info: bool, warning: bool, error: bool, style: str, process: str = "") -> None:
    """Change what the log that has been opened shows, and how its lines begin; ``process`` stays if not given."""
    escape = os.environ.get("TRITON_SERVER_ESCAPE_LOG_MESSAGES") != "0"
    wanted = {logging.DEBUG: verbose > 0, logging.INFO: info, logging.WARNING: warning, logging.ERROR: error}
    root = logging.getLogger("bident")
    for target in (handler for handler in root.handlers if isinstance(handler, _Log)):
        before = target.formatter
        kept = before.process if isinstance(before, TritonFormatter) else ""
        target.setFormatter(TritonFormatter(iso8601=style == "ISO8601", escape=escape, process=process or kept))
        target.filters[:] = [lambda record: wanted.get(record.levelno, True)]
    root.setLevel(logging.DEBUG if verbose else logging.INFO)
