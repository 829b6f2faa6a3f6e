"""Settings that are refused, misspelt, or mean something else in another folder."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bident.doctor.check import Finding, Fix, Patient
from bident.doctor.machine.surroundings import MachineCheck
from bident.doctor.treatment import replace_file
from bident.errors import SettingsError
from bident.model.hints import closest
from bident.settings import TABLE, TEXT_TABLE
from bident.settings.parse import read_toml
from bident.settings.values import FILE, FOLDERS

_SEPARATOR = ";"
_OTHERS = frozenset(
    {
        "BIDENT_URL",
        "BIDENT_TEXT_URL",
        "BIDENT_API_KEY",
        "BIDENT_CA",
        "BIDENT_HEADERS",
        "BIDENT_SIGTERM_IS_MAINS",
        "BIDENT_SUPERVISED",
        "BIDENT_TRACEBACK",
    }
)
"""Variables of the commands; not settings of a server."""
_FILES = ("-file", "-cert", "-server-key")
"""How settings end that name a file and take any text."""
_PATHS = {
    row.environment: row.key for row in (*TABLE, *TEXT_TABLE) if row.kind in (FILE, FOLDERS) or row.key.endswith(_FILES)
}
"""The settings that are paths: variable and key."""


class Settings(MachineCheck):
    """What ``bident serve`` says when it refuses, before it is started."""

    name = "settings"
    title = "The servers refuse their settings, or do not know them"

    def examine(self, patient: Patient) -> Iterator[Finding]:
        try:
            self._here.strict_settings()
        except SettingsError as error:
            yield self._broken(
                self._here.config_file or "environment",
                error.message,
                "a value in the environment or in bident.toml does not fit, or contradicts another",
                "correct it; docs/reference/settings.md has every setting, 'bident serve --help' too",
            )
        known = {row.environment for row in (*TABLE, *TEXT_TABLE)}
        for name in sorted(self._here.environ):
            if name.startswith("BIDENT_") and name not in known | _OTHERS and (near := closest(name, known)):
                yield self._risk(
                    name,
                    "no setting is called so, and nothing reads it",
                    "the name is misspelt, or of another version",
                    f"did you mean {near}?",
                )


class RelativePaths(MachineCheck):
    """They work in one terminal, and not in a service that starts elsewhere."""

    name = "relative-paths"
    title = "A path in the settings depends on the folder a server is started in"

    def examine(self, patient: Patient) -> Iterator[Finding]:
        for name in _PATHS:
            for text in self._here.environ.get(name, "").split(_SEPARATOR):
                if text and _is_relative(text):
                    yield self._risk(
                        f"{name}={text}",
                        f"here it means {self._whole(text)}",
                        "a relative path is looked up in the folder the server is started in: a service, a cron job "
                        "or another terminal start it elsewhere",
                        f"export {name}={self._whole(text)}",
                    )
        if self._here.config_file:
            yield from self._of_file(self._here.config_file)

    def _of_file(self, path: Path) -> Iterator[Finding]:
        """The values of ``bident.toml``, and the lines that they are in, to be mended there."""
        for key, text in _paths_of(path):
            line = next((number for number, line in enumerate(_lines(path), 1) if _quotes(line, text)), 0)
            if line and _is_relative(text):
                whole = str(self._whole(text))
                yield self._risk(
                    f"{path}:{line}",
                    f"{key} is '{text}'; here it means {whole}",
                    "a relative path is looked up in the folder the server is started in, not beside the file",
                    f"write {whole}",
                    Fix(f"write {whole} in {path}", partial(_write, path, text, whole)),
                )

    def _whole(self, text: str) -> Path:
        return (self._here.directory / text).resolve()


def _is_relative(text: str) -> bool:
    return not text.startswith("~") and not Path(text).is_absolute()


def _paths_of(path: Path) -> Iterator[tuple[str, str]]:
    """The settings of a TOML file that are paths, each key with each of its texts."""
    try:
        tables = [table for table in read_toml(path).values() if isinstance(table, dict)]
    except SettingsError:
        return  # the check of settings says so
    for key, value in (entry for table in tables for entry in table.items()):
        if key.replace("_", "-") in _PATHS.values():
            for text in value if isinstance(value, list) else [value]:
                if isinstance(text, str):
                    yield key, text


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _quotes(line: str, text: str) -> bool:
    return f'"{text}"' in line or f"'{text}'" in line


def _write(path: Path, old: str, new: str) -> None:
    """Put ``new`` in place of the string ``old`` wherever ``path`` has it."""
    text = path.read_text(encoding="utf-8")
    replace_file(path, text.replace(f'"{old}"', f'"{new}"').replace(f"'{old}'", f"'{new}'").encode())
