"""Every error Bident raises on purpose.

    Exception
    └── ServeError              carries one of Triton's eight codes; a door turns it into a status
        ├── MalformedError      a body cannot be read as what it should be (always INVALID_ARG)
        ├── TooLargeError       a body is larger than the server takes (always INVALID_ARG)
        ├── ConfigError         a model's declaration or files are wrong (always INVALID_ARG)
        └── SettingsError       a flag, environment variable or bident.toml entry is wrong (always INVALID_ARG)

A ``ServeError`` is an answer, not an accident: its message keeps the fragment that Triton's clients
match on and then says what to change. The code is protocol-neutral; each door owns one table that
turns it into its own status (``doors/http/status.py``).
"""

from __future__ import annotations

from enum import Enum


class Code(Enum):
    """Triton's error codes (``TRITONSERVER_Error_Code`` of the in-process API)."""

    UNKNOWN = "unknown"
    INTERNAL = "internal"
    NOT_FOUND = "not_found"
    INVALID_ARG = "invalid_arg"
    UNAVAILABLE = "unavailable"
    UNSUPPORTED = "unsupported"
    ALREADY_EXISTS = "already_exists"
    CANCELLED = "cancelled"


class ServeError(Exception):
    """A failure with a code and a message meant for the person who sent the request."""

    def __init__(self, code: Code, message: str) -> None:
        # File names may hold bytes that are no text; no answer and no log line could be written with them.
        self.message = message.encode("utf-8", "backslashreplace").decode("utf-8")
        super().__init__(self.message)
        self.code = code


class MalformedError(ServeError):
    """JSON that is broken, or holds something else than belongs there. Triton calls it INTERNAL, its own failure."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.INVALID_ARG, message)


class TooLargeError(ServeError):
    """A body of more bytes than the server takes; HTTP has a status for it."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.INVALID_ARG, message)


class ConfigError(ServeError):
    """A model folder that cannot be served as it stands: what, where, and the cure."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.INVALID_ARG, message)


class SettingsError(ServeError):
    """A server setting that cannot be used: which one, where it came from, and what would do."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.INVALID_ARG, message)


def invalid_arg(message: str) -> ServeError:
    """The client's mistake: the commonest error, hence the short spelling."""
    return ServeError(Code.INVALID_ARG, message)
