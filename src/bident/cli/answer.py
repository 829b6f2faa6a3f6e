"""Shows an answer to a person: classes by rank, objects in a table, small tensors in full, large ones in outline."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bident.cli import screen, side_by_side
from bident.cli.card import ModelCard
from bident.client.infer import Answer

_MOST_COLUMNS = 16
"""Values of one row that are still shown side by side."""
_MOST_ROWS = 20


def show_answer(model: ModelCard, answer: Answer, top: int) -> None:
    """Print every output of ``answer``; ``top``: how many classes or largest values."""
    if columns := side_by_side.aligned(model, answer.tensors):
        side_by_side.show(columns, top)
        return
    batched = model.max_batch_size > 0
    for name, tensor in answer.tensors.items():
        card = model.outputs.get(name)
        items = list(tensor) if batched and tensor.ndim else [tensor]
        if card and card.labelled and card.datatype != "BYTES" and tensor.dtype == object:
            _show_classes(name, items)
        elif all(item.size <= _MOST_COLUMNS for item in items):
            _show_rows(name, items, tensor)
        elif all(item.ndim == 1 for item in items):
            _show_largest(name, items, top)
        else:
            _show_outline(name, tensor)


def _title(name: str, tensor: NDArray[Any] | None = None) -> str:
    shape = "" if tensor is None else f" {list(tensor.shape)}"
    return screen.text(f"{name}{shape}")


def _show_classes(name: str, items: list[NDArray[Any]]) -> None:
    """Rows of the classification extension: ``value:index`` and, where there is one, ``:label``."""
    screen.show(_title(name))
    rows = screen.table(">row", ">rank", "label", ">index", ">value")
    for number, item in enumerate(items[:_MOST_ROWS]):
        for rank, text in enumerate(item.reshape(-1).tolist(), 1):
            value, index, label = (*text.decode(errors="replace").split(":", 2), "", "")[:3]
            rows.add_row(str(number), str(rank), screen.text(label), index, value)
    screen.show(rows)
    _show_rest(items)


def _show_rows(name: str, items: list[NDArray[Any]], tensor: NDArray[Any]) -> None:
    screen.show(_title(name, tensor))
    rows = screen.table(">row", "values")
    for number, item in enumerate(items[:_MOST_ROWS]):
        rows.add_row(str(number), screen.text("  ".join(_value(value) for value in item.reshape(-1).tolist())))
    screen.show(rows)
    _show_rest(items)


def _show_largest(name: str, items: list[NDArray[Any]], top: int) -> None:
    if any(item.dtype == object for item in items):
        _show_rows(name, [item[:top] for item in items], items[0])
        return
    screen.show(f"{_title(name)}: the {top} largest values")
    rows = screen.table(">row", ">rank", ">index", ">value")
    for number, item in enumerate(items[:_MOST_ROWS]):
        for rank, index in enumerate(np.argsort(-item.astype(np.float64), kind="stable")[:top].tolist(), 1):
            rows.add_row(str(number), str(rank), str(index), _value(item[index].item()))
    screen.show(rows)
    _show_rest(items)


def _show_outline(name: str, tensor: NDArray[Any]) -> None:
    if tensor.dtype == object:
        screen.show(f"{_title(name, tensor)}: strings, {tensor.size} in all; --json prints them")
        return
    numbers = tensor.astype(np.float64)
    screen.show(
        f"{_title(name, tensor)}: {tensor.size} values from {_value(numbers.min())} to {_value(numbers.max())}, "
        f"mean {_value(numbers.mean())}; --json prints them"
    )


def _show_rest(items: list[NDArray[Any]]) -> None:
    if len(items) > _MOST_ROWS:
        screen.show(f"... and {len(items) - _MOST_ROWS} rows more; --json prints them")


def _value(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return f"{value:.6g}" if isinstance(value, float) else str(value)
