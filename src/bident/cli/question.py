"""Reads the INPUT of ``bident run``: picture, text, JSON, CSV, npz or npy, into the tensors a model takes."""

from __future__ import annotations

import csv
import json
import secrets
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bident.cli import picture
from bident.cli.card import ModelCard, TensorCard
from bident.cli.fit import datatype_of, fit
from bident.cli.picture import PictureOptions
from bident.errors import ServeError, invalid_arg

_KINDS = "a picture, .json, .csv, .tsv, .npz, .npy, JSON itself, or - for JSON on standard input"
_DATA_SUFFIXES = (".json", ".csv", ".tsv", ".npz", ".npy")
_FILE_SUFFIXES = (*_DATA_SUFFIXES, ".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".txt")


@dataclass(frozen=True)
class Question:
    """What to ask: tensors by input name or, given as a whole request, ``body``.

    ``remarks`` say what was guessed on the way, ``parameters`` are request parameters.
    """

    tensors: dict[str, NDArray[Any]] = field(default_factory=dict)
    body: dict[str, Any] | None = None
    remarks: tuple[str, ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)

    def with_parameters(self, pairs: list[str]) -> Question:
        """The question with request parameters ``NAME=VALUE``: numbers, true and false as such, else text."""
        return replace(self, parameters=dict(map(_parameter, pairs)))

    def as_sequence(self, model: ModelCard) -> Question:
        """The question as a sequence of its own, where ``model`` wants one and it does not say which it belongs to."""
        said = {**(self.body or {}).get("parameters", {}), **self.parameters}
        # Any id that nobody else has; 31 bits are in every datatype that a model may take it as.
        sequence = model.lone_sequence(1 + secrets.randbelow(2**31 - 1))
        if not sequence or "sequence_id" in said:
            return self
        remark = (
            "asked as a sequence of one request; --param sequence_id=1 --param sequence_start=true begins a longer one"
        )
        return replace(self, parameters={**sequence, **self.parameters}, remarks=(*self.remarks, remark))


def read(source: str, model: ModelCard, options: PictureOptions) -> Question:
    """The question that ``source`` (a file, JSON itself, or ``-`` for standard input) asks ``model``.

    Raises INVALID_ARG that says what the model takes and what the file holds.
    """
    if source == "-":
        return from_json(sys.stdin.read(), model, "standard input")
    if not source:
        raise invalid_arg(
            f"INPUT is empty; it is a text for a model that takes texts ('\"\"' is an empty one), {_KINDS}"
        )
    if source.lstrip()[:1] in ("[", "{") or _is_json_text(source):
        return from_json(source, model, "INPUT")
    path, only = Path(source), _only_input(model)
    takes_bytes = only is not None and only.datatype == "BYTES"
    is_there = _is_there(path)
    if not is_there or not path.is_file():
        if only and takes_bytes and not is_there and not _looks_like_a_file(source):
            return Question({only.name: fit(only, [source])}, remarks=_doubt(source))
        problem = f"{source} is a folder" if is_there and path.is_dir() else f"there is no file {source}"
        raise invalid_arg(f"{problem}; INPUT is {_KINDS}")
    suffix = path.suffix.lower()
    if suffix == ".json":
        return from_json(_text(path), model, source)
    if suffix in (".csv", ".tsv"):
        return from_csv(_text(path), model, source)
    if suffix in (".npz", ".npy"):
        return from_numpy(path, model)
    if only and takes_bytes:
        data = path.read_bytes()
        return Question({only.name: fit(only, [data])}, remarks=(f"{source}: sent as it is, {len(data)} bytes",))
    array, card, remark = picture.read(path, model, options)
    return Question(_complete({card.name: array}, model), remarks=(remark,))


def from_json(text: str, model: ModelCard, source: str) -> Question:
    """A v2 request, an object of values by input name, or the bare value or list of the only input."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise invalid_arg(f"{source} is not JSON: {error}") from None
    if isinstance(value, dict) and _is_request(value):
        return Question(body=value)
    if isinstance(value, dict):
        only = _only_input(model)
        if only and set(value) == {"input"} and "input" not in model.inputs:
            value = {only.name: value["input"]}
        return Question(_by_name(value, model))
    if value is None:
        raise invalid_arg(f"{source} holds null; expected a value, a list, or an object of values by input name")
    return Question({card.name: fit(card, value) for card in [_the_input(model, f"{source} names no input")]})


def from_csv(text: str, model: ModelCard, source: str) -> Question:
    """One request whose batch is the rows; a header is told by its names or by not being numbers."""
    rows = [row for row in csv.reader(text.splitlines(), delimiter=_delimiter(text)) if row]
    if not rows:
        raise invalid_arg(f"{source} is empty")
    header = rows.pop(0) if _is_header(rows[0], model) else []
    if not rows:
        raise invalid_arg(f"{source} has a header but no rows")
    names = [name.strip() for name in header]
    if set(_required(model)) <= set(names):
        columns = {name: names.index(name) for name in model.inputs if name in names}
        cells = {name: [[row[at]] for row in _even(rows, len(names), source)] for name, at in columns.items()}
        return Question({name: fit(model.inputs[name], _cells(model.inputs[name], cells[name])) for name in columns})
    card = _the_input(model, f"{source} needs a header with the input names as columns")
    width = card.shape[-1] if card.shape else -1
    if width not in (-1, len(rows[0])):
        named = f" ({', '.join(names)})" if names else ""
        raise invalid_arg(f"{source} has {len(rows[0])} columns{named}, input {card} takes {width}")
    remarks = ("header ignored: columns are taken in their order",) if names and len(names) > 1 else ()
    return Question({card.name: fit(card, _cells(card, _even(rows, len(rows[0]), source)))}, remarks=remarks)


def from_numpy(path: Path, model: ModelCard) -> Question:
    """Arrays by input name from .npz; the only input from .npy or from an .npz of one array."""
    try:
        loaded = np.load(path, allow_pickle=False)
        arrays = dict(loaded) if isinstance(loaded, np.lib.npyio.NpzFile) else {"": loaded}
    except (ValueError, OSError, EOFError) as error:
        raise invalid_arg(f"{path} cannot be read as numpy arrays: {error}") from None
    only = _only_input(model)
    if only and len(arrays) == 1 and only.name not in arrays:
        arrays = {only.name: next(iter(arrays.values()))}
    if "" in arrays:
        raise invalid_arg(
            f"{path} holds one array without a name; {model.signature()}: save them by name with np.savez"
        )
    return Question(_by_name(arrays, model))


def _parameter(pair: str) -> tuple[str, bool | int | float | str]:
    name, equals, value = pair.partition("=")
    if not name or not equals:
        raise invalid_arg(f"--param takes NAME=VALUE; got {pair}")
    try:
        said = json.loads(value)
    except ValueError:
        said = value
    return name, said if isinstance(said, (bool, int, float)) else value


def _is_json_text(source: str) -> bool:
    """Whether ``source`` is a text in the quotes that JSON puts around it."""
    try:
        return isinstance(json.loads(source), str)
    except ValueError:
        return False


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        # A text can be longer than any path.
        return False


def _looks_like_a_file(source: str) -> bool:
    """Whether ``source`` names a file that is not there, rather than being a text to send."""
    if Path(source).suffix.lower() in _FILE_SUFFIXES:
        return True
    return not _is_sentence(source) and any(mark in source for mark in ("/", "\\"))


def _is_sentence(source: str) -> bool:
    return len(source.split()) > 1


def _doubt(source: str) -> tuple[str, ...]:
    return () if _is_sentence(source) else (f"there is no file {source}: sent as text",)


def _is_request(value: dict[str, Any]) -> bool:
    inputs = value.get("inputs")
    return isinstance(inputs, list) and all(isinstance(entry, dict) and "name" in entry for entry in inputs)


def _by_name(values: dict[str, Any], model: ModelCard) -> dict[str, NDArray[Any]]:
    for name in values:
        if name not in model.inputs:
            raise invalid_arg(f"'{name}' is not an input: {model.signature()}")
    return _complete({name: fit(model.inputs[name], value) for name, value in values.items()}, model)


def _complete(tensors: dict[str, NDArray[Any]], model: ModelCard) -> dict[str, NDArray[Any]]:
    missing = [name for name in _required(model) if name not in tensors]
    if missing:
        raise invalid_arg(f"no value for input '{missing[0]}': {model.signature()}; give them all in a .json or .npz")
    return tensors


def _required(model: ModelCard) -> list[str]:
    return [name for name, card in model.inputs.items() if not card.optional]


def _only_input(model: ModelCard) -> TensorCard | None:
    required = _required(model)
    return model.inputs[required[0]] if len(required) == 1 else None


def _the_input(model: ModelCard, problem: str) -> TensorCard:
    only = _only_input(model)
    if only is None:
        raise invalid_arg(f"{problem}, and {model.signature()}")
    return only


def _text(path: Path) -> str:
    try:
        # "utf-8-sig": spreadsheets put a byte order mark before the first column's name.
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise invalid_arg(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None


def _delimiter(text: str) -> str:
    first = text.partition("\n")[0]
    return max(",;\t", key=first.count)


def _is_header(row: list[str], model: ModelCard) -> bool:
    if {cell.strip() for cell in row} & set(model.inputs):
        return True
    numeric = any(card.datatype != "BYTES" for card in model.inputs.values())
    return numeric and any(cell.strip() and _number(cell) is None for cell in row)


def _even(rows: list[list[str]], width: int, source: str) -> list[list[str]]:
    for number, row in enumerate(rows, 1):
        if len(row) != width:
            raise invalid_arg(f"{source}: row {number} has {len(row)} cells, the first one {width}")
    return rows


def _cells(card: TensorCard, rows: list[list[str]]) -> NDArray[Any]:
    datatype = datatype_of(card)
    if datatype.name == "BYTES":
        return np.array(rows, dtype=object)
    return np.array([[_cell(card, cell, number) for cell in row] for number, row in enumerate(rows, 1)])


def _cell(card: TensorCard, cell: str, row: int) -> float | int:
    if not cell.strip():
        # An empty cell is a missing value, which only floats can say.
        return float("nan")
    number = _number(cell)
    if number is None:
        raise _not_a_number(card, cell, row)
    return number


def _not_a_number(card: TensorCard, cell: str, row: int) -> ServeError:
    return invalid_arg(f"row {row}: '{cell}' is not a number, and input {card} takes numbers")


def _number(cell: str) -> float | int | None:
    for read_as in (int, float):
        try:
            return read_as(cell)
        except ValueError:
            continue
    return None
