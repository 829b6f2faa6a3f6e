"""What clients see of the log, and what they may change: the *logging* protocol extension.

``docs/protocol/extension_logging.md`` of Triton. What they change holds for the running log at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from bident.errors import Code, MalformedError, ServeError, invalid_arg
from bident.observe import log

FORMATS = ("default", "ISO8601")
_SWITCHES = ("log_info", "log_warning", "log_error")
_MOST_VERBOSE = 2**32 - 1


@dataclass(frozen=True)
class _Said:
    """The settings, by their names in the protocol and in its order."""

    log_file: str = ""
    log_info: bool = True
    log_warning: bool = True
    log_error: bool = True
    log_verbose_level: int = 0
    log_format: str = "default"


class LogSettings:
    """The settings of this process's log, which :func:`bident.observe.log.configure` has opened."""

    def __init__(
        self,
        *,
        file: str = "",
        info: bool = True,
        warning: bool = True,
        error: bool = True,
        verbose: int = 0,
        style: str = "default",
    ) -> None:
        """As they were when it was opened."""
        self._said = _Said(file, info, warning, error, verbose, style)

    def as_dict(self) -> dict[str, Any]:
        """All of them."""
        return asdict(self._said)

    def update(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Change those that are named, but for None; returns all of them.

        Raises UNSUPPORTED for the file, UNAVAILABLE (as Triton does) for an unknown format, INVALID_ARG for anything
        else that cannot be; then nothing has changed.
        """
        if changes.get("log_file") is not None:
            raise ServeError(
                Code.UNSUPPORTED, "log file location can not be updated through network protocol: it is --log-file"
            )
        known = self.as_dict()
        if unknown := [name for name in changes if name not in known]:
            raise invalid_arg(f"there is no log setting '{unknown[0][:50]}': there are {', '.join(known)}")
        said = replace(self._said, **{name: _read(name, value) for name, value in changes.items() if value is not None})
        if said != self._said:
            self._said = said
            log.adjust(
                verbose=said.log_verbose_level,
                info=said.log_info,
                warning=said.log_warning,
                error=said.log_error,
                style=said.log_format,
            )
        return self.as_dict()


def _read(name: str, value: Any) -> Any:
    if name in _SWITCHES:
        if type(value) is not bool:
            raise MalformedError(f"attempt to access JSON non-boolean as boolean: '{name}' is true or false")
    elif name == "log_verbose_level":
        if type(value) is not int or not 0 <= value <= _MOST_VERBOSE:
            raise MalformedError(
                f"attempt to access JSON non-unsigned-integer as unsigned-integer: '{name}' is a number, 0 for none"
            )
    elif type(value) is not str:
        raise MalformedError(f"attempt to access JSON non-string as string: '{name}' is {' or '.join(FORMATS)}")
    elif value not in FORMATS:
        raise ServeError(
            Code.UNAVAILABLE, f"invalid argument for --log_format, got: {value[:50]}; it is {' or '.join(FORMATS)}"
        )
    return value
