"""Reads settings from the command line, the environment and a file, and settles them.

The command line is read as ``tritonserver`` reads it: ``--x=y`` and ``--x y`` are the same, and the
start of a flag is enough where only one flag starts so (``--model-repo``).
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bident.errors import SettingsError
from bident.settings.setting import Setting, Table
from bident.settings.settle import settle
from bident.settings.settle_text import settle_text
from bident.settings.tensor import TABLE, TensorSettings
from bident.settings.text import TEXT_TABLE, TextSettings

_TENSOR = Table("tensor", TABLE)
_TEXT = Table("text", TEXT_TABLE)
_NO_DEFAULTS: Mapping[str, str] = MappingProxyType({})
_SEPARATOR = ";"
"""Between the values of one environment variable: neither paths nor ``name,key=value`` hold it."""
TEXT_FLAG = "--text-"
"""What the text server's flags begin with where both servers are told theirs."""
_TRIMMED = " \t\r\n\"'"
"""Ollama takes these off the ends of its variables."""


@dataclass
class _Given:
    """The texts given for one setting by one source, and what to call them in an error."""

    source: str
    texts: list[str]


def parse_tensor_args(
    argv: Sequence[str],
    environ: Mapping[str, str],
    config_file: Path | None = None,
    defaults: Mapping[str, str] = _NO_DEFAULTS,
) -> TensorSettings:
    """The settings that ``argv``, ``environ`` and a TOML file together give.

    ``config_file`` is read when neither a flag nor the environment names another; it must exist.
    ``defaults``: texts by setting's name that a command prefers to the table's own defaults.
    Raises SettingsError that names the flag, variable or key, what it got and what it takes.
    """
    values = _values(_TENSOR, argv, environ, config_file)
    preferred = {name: _value(_TENSOR.by_name[name], _Given(name, [text])) for name, text in defaults.items()}
    return settle(TensorSettings(**(preferred | values)), frozenset(values))


def given_texts(
    argv: Sequence[str], environ: Mapping[str, str], config_file: Path | None = None
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """What the three sources say of both servers' settings, unread: texts by setting's name, no defaults.

    For whoever has to pass them on; ``argv`` is for both (:func:`split_flags`). Raises SettingsError as
    :func:`parse_both_args` does.
    """
    tensor_argv, text_argv = split_flags(argv)
    tensor = _given(_TENSOR, tensor_argv, environ, config_file)
    named = Path(tensor["config_file"].texts[-1]) if "config_file" in tensor else config_file
    text = _given(_TEXT, text_argv, environ, named)
    return _texts_of(tensor), _texts_of(text)


def _texts_of(given: Mapping[str, _Given]) -> dict[str, list[str]]:
    return {name: entry.texts for name, entry in given.items()}


def parse_text_args(argv: Sequence[str], environ: Mapping[str, str], config_file: Path | None = None) -> TextSettings:
    """As :func:`parse_tensor_args`, for the text server; of the environment Ollama's variables are heeded too."""
    return settle_text(TextSettings(**_values(_TEXT, argv, environ, config_file)))


def parse_both_args(
    argv: Sequence[str],
    environ: Mapping[str, str],
    config_file: Path | None = None,
    defaults: Mapping[str, str] = _NO_DEFAULTS,
) -> tuple[TensorSettings, TextSettings]:
    """The settings of both servers, where ``argv`` is for both (:func:`split_flags`); ``defaults`` are the tensor
    server's. A config file that is named to the tensor server is the text server's too, unless that has one of its own.
    """
    tensor_argv, text_argv = split_flags(argv)
    tensor = parse_tensor_args(tensor_argv, environ, config_file, defaults)
    try:
        text = parse_text_args(text_argv, environ, tensor.config_file or config_file)
    except SettingsError as error:
        raise SettingsError(f"text server: {error.message}; here its flags begin with {TEXT_FLAG}") from None
    return tensor, text


def split_flags(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """What each server is told by ``argv``: the tensor server, and the text server, whose flags begin with --text-."""
    tensor: list[str] = []
    text: list[str] = []
    told = tensor
    for word in argv:
        if word.startswith("--"):
            told = text if word.startswith(TEXT_FLAG) else tensor
        told.append(f"--{word.removeprefix(TEXT_FLAG)}" if told is text and word.startswith(TEXT_FLAG) else word)
    return tensor, text


def canonical_flags(argv: Sequence[str]) -> list[str]:
    """``argv`` of both servers with every flag whole and as one word, however it was written. Raises SettingsError."""
    tensor, text = split_flags(argv)
    return [*_canonical(_TENSOR, tensor, "--"), *_canonical(_TEXT, text, TEXT_FLAG)]


def _canonical(table: Table, argv: Sequence[str], prefix: str) -> list[str]:
    return [
        f"{prefix}{row.key}={text}" if row.takes_value else f"{prefix}{row.key}"
        for name, given in _from_flags(table, argv).items()
        for row in [table.by_name[name]]
        for text in given.texts
    ]


def _values(table: Table, argv: Sequence[str], environ: Mapping[str, str], config_file: Path | None) -> dict[str, Any]:
    """What the three sources give, by the settings' names."""
    given = _given(table, argv, environ, config_file)
    return {name: _value(table.by_name[name], entry) for name, entry in given.items()}


def _given(
    table: Table, argv: Sequence[str], environ: Mapping[str, str], config_file: Path | None
) -> dict[str, _Given]:
    given = _from_environment(table, environ) | _from_flags(table, argv)
    named = given["config_file"].texts[-1] if "config_file" in given else config_file
    return given if named is None else _from_file(table, Path(named)) | given


def _value(row: Setting, given: _Given) -> Any:
    try:
        items = [row.kind.parse(text) for text in given.texts]
        return row.kind.collect(items) if row.kind.collect else items[-1]
    except ValueError as error:
        raise SettingsError(f'Bad option: "{given.source}". {error}') from None


def _from_flags(table: Table, argv: Sequence[str]) -> dict[str, _Given]:
    given: dict[str, _Given] = {}
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or word == "--":
            raise SettingsError(f"Unexpected argument: {word}")
        flag, equals, text = word.partition("=")
        row = _find(table, flag)
        if not row.takes_value:
            if equals:
                raise SettingsError(f"option '{row.flag}' doesn't allow an argument")
            text = "true"
        elif not equals:
            if not rest or rest[0].partition("=")[0] in table.by_flag:
                raise SettingsError(f"option '{row.flag}' requires an argument: {row.flag}={row.kind.metavar}")
            text = rest.pop(0)
        given.setdefault(row.name, _Given(row.flag, [])).texts.append(text)
    return given


def _find(table: Table, flag: str) -> Setting:
    if flag in table.by_flag:
        return table.by_flag[flag]
    starts = {row.flag: row for known, row in table.by_flag.items() if known.startswith(flag)}
    if len(starts) == 1:
        return starts.popitem()[1]
    if starts and flag != "--":
        raise SettingsError(f"option '{flag}' is ambiguous; it may be {' or '.join(sorted(starts)[:6])}")
    raise SettingsError(f"unrecognized option '{flag}'{_did_you_mean(flag, table.by_flag)}")


def _from_environment(table: Table, environ: Mapping[str, str]) -> dict[str, _Given]:
    given: dict[str, _Given] = {}
    for row in table.rows:
        if text := environ.get(row.environment, ""):
            texts = text.split(_SEPARATOR) if row.repeatable else [text]
            given[row.name] = _Given(row.environment, [part for part in texts if part])
        elif text := environ.get(row.foreign, "").strip(_TRIMMED):
            given[row.name] = _Given(row.foreign, [text])
    return given


def _from_file(table: Table, path: Path) -> dict[str, _Given]:
    sections = read_toml(path)
    section = sections.get(table.section, {})
    strays = [key for key, value in sections.items() if not isinstance(value, dict)]
    if strays or not isinstance(section, dict):
        raise SettingsError(
            f"{path}: '{strays[0] if strays else table.section}' must stand in a [{table.section}] table"
        )
    given: dict[str, _Given] = {}
    for key, value in section.items():
        row = table.by_key.get(key.replace("_", "-"))
        if row is None:
            known = _did_you_mean(key, table.by_key)
            raise SettingsError(f"{path}: unknown setting '{key}' in [{table.section}]{known}")
        given[row.name] = _Given(f"{key} in {path}", _texts(row, value, f"{path}: '{key}'"))
    return given


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file. Raises SettingsError where it is none."""
    # Imported only where a file is read: most servers have none, and starting must stay quick.
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read the config file {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise SettingsError(f"{path} is not TOML: {error}") from None


def _texts(row: Setting, value: Any, where: str) -> list[str]:
    """A TOML value as the texts that flags would have carried."""
    if isinstance(value, list) and row.repeatable and value:
        return [text for item in value for text in _texts(row, item, where)]
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if isinstance(value, (str, int, float)):
        return [str(value)]
    expected = "a value, or a list of them" if row.repeatable else "one value"
    raise SettingsError(f"{where} must be {expected}, written as after {row.flag}, not {value!r}")


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean '{near[0]}'?" if near else ""
