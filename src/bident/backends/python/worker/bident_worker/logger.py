"""``pb_utils.Logger``: lines in the server's log."""

from __future__ import annotations

import sys
from enum import Enum
from typing import Any

from .errors import bounded
from .frames import Kind
from .runtime import current


class LogLevel(Enum):
    """How grave a line is."""

    INFO = 0
    WARNING = 1
    ERROR = 2
    VERBOSE = 3


def write(message: str, level: LogLevel, caller: Any = None) -> None:
    """Write ``message`` to the server's log, as coming from the ``caller``'s place."""
    if not isinstance(message, str):
        raise TypeError(f"log takes a message of type str, found {type(message)}")
    if not isinstance(level, LogLevel):
        raise TypeError(f"log takes a level such as Logger.INFO, found {type(level)}")
    place = ["", 0] if caller is None else [caller.f_code.co_filename, caller.f_lineno]
    current().link.send(Kind.LOG, {"level": level.value, "message": bounded(message), "place": place})


class Logger:
    """Writes to the server's log."""

    INFO = LogLevel.INFO
    WARNING = LogLevel.WARNING
    ERROR = LogLevel.ERROR
    VERBOSE = LogLevel.VERBOSE

    @staticmethod
    def log(message: str, level: LogLevel = LogLevel.INFO) -> None:
        """Log ``message`` at ``level``."""
        write(message, level, sys._getframe(1))

    @staticmethod
    def log_info(message: str) -> None:
        """Log ``message`` as information."""
        write(message, LogLevel.INFO, sys._getframe(1))

    @staticmethod
    def log_warn(message: str) -> None:
        """Log ``message`` as a warning."""
        write(message, LogLevel.WARNING, sys._getframe(1))

    @staticmethod
    def log_error(message: str) -> None:
        """Log ``message`` as an error."""
        write(message, LogLevel.ERROR, sys._getframe(1))

    @staticmethod
    def log_verbose(message: str) -> None:
        """Log ``message`` for those who want to see everything."""
        write(message, LogLevel.VERBOSE, sys._getframe(1))


# Triton has the levels' type inside of the logger's.
Logger.LogLevel = LogLevel  # type: ignore[attr-defined]
