"""Answers whose outputs belong together entry by entry: an object's name, score and box, a class and its score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bident.cli import screen
from bident.cli.card import ModelCard

_CORNERS = 4
_MOST_ROWS = 100


def aligned(model: ModelCard, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The outputs of a model that answers with lists of the same length, one of them names; empty for another's.

    Each is [rows, entries], boxes are [rows, entries, 4]; a model without batches has one row.
    """
    columns = {name: tensors[name] for name in model.outputs if name in tensors}
    if model.max_batch_size == 0:
        columns = {name: tensor[None] for name, tensor in columns.items()}
    alike = len(columns) > 1 and len({tensor.shape[:2] for tensor in columns.values()}) == 1
    listed = all(tensor.ndim == 2 or is_boxes(tensor) for tensor in columns.values())
    # What comes by the classification extension is ranked within each output, not across them.
    named = any(tensor.dtype == object for tensor in columns.values())
    ranked = any(tensor.dtype == object and model.outputs[name].labelled for name, tensor in columns.items())
    return columns if alike and listed and named and not ranked else {}


def is_boxes(tensor: NDArray[Any]) -> bool:
    """Whether an aligned output holds the corners of boxes."""
    return tensor.dtype.kind == "f" and tensor.ndim == 3 and tensor.shape[2] == _CORNERS


def show(columns: Mapping[str, NDArray[Any]], top: int) -> None:
    """Print aligned outputs as one table; of rankings (what has no boxes) the first ``top`` entries of each row."""
    # What an entry is goes first, then numbers, then boxes.
    names = sorted(columns, key=lambda name: (columns[name].dtype != object, columns[name].ndim))
    rows, entries = columns[names[0]].shape[:2]
    if not any(is_boxes(tensor) for tensor in columns.values()):
        entries = min(entries, top)
    if rows * entries == 0:
        screen.show(screen.text(f"{', '.join(names)}: nothing found"))
        return
    table = screen.table(">row", ">rank", *names)
    places = [(row, entry) for row in range(rows) for entry in range(entries)]
    for row, entry in places[:_MOST_ROWS]:
        table.add_row(str(row), str(entry + 1), *[screen.text(_cell(columns[name][row, entry])) for name in names])
    screen.show(table)
    if len(places) > _MOST_ROWS:
        screen.show(f"... and {len(places) - _MOST_ROWS} rows more; --json prints them")


def _cell(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, np.ndarray):
        return "  ".join(f"{number:.1f}" for number in value.tolist())
    return f"{value:.4f}" if isinstance(value, np.floating) else str(value)
