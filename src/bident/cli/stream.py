"""Asks a decoupled model, which answers any number of times, and shows each answer as it comes."""

from __future__ import annotations

import json
import math
import time
from typing import Any, NoReturn

import numpy as np
import typer
from numpy.typing import NDArray

from bident.cli import screen
from bident.cli.card import ModelCard, TensorCard
from bident.cli.question import Question
from bident.client import Client, model_path
from bident.errors import invalid_arg

_INTERRUPTED = 130
"""The exit code of what Ctrl-C has ended."""


def ask(client: Client, model: ModelCard, question: Question, *, version: str = "", as_json: bool = False) -> None:
    """Ask ``model`` over its generate_stream route and print each answer; ``as_json``: as the server wrote it.

    Raises what the server answers, and INVALID_ARG for inputs that this route cannot carry.
    """
    path = f"{model_path(model.name, version)}/generate_stream"
    body = _body(model, question, client.url + path)
    started, count, event = time.perf_counter(), 0, {"model_version": "?"}
    try:
        for event in client.events(path, body):
            count += 1
            print(json.dumps(event, ensure_ascii=False) if as_json else _line(model, event), flush=True)
    except KeyboardInterrupt:
        screen.note(f"stopped after {_counted(count)}")
        raise typer.Exit(_INTERRUPTED) from None
    if not as_json:
        seconds = time.perf_counter() - started
        screen.show(f"{model.name} version {event['model_version']}, {_counted(count)}, {seconds * 1000:.1f} ms")


def _counted(count: int) -> str:
    return "1 answer" if count == 1 else f"{count or 'no'} answers"


def _line(model: ModelCard, event: dict[str, Any]) -> str:
    """The outputs of one answer; their names only where there are several."""
    values = {name: _text(event[name]) for name in model.outputs if name in event}
    if len(model.outputs) == 1:
        return "".join(values.values())
    return "  ".join(f"{name}: {value}" for name, value in values.items())


def _text(value: Any) -> str:
    return "  ".join(map(_text, value)) if isinstance(value, list) else str(value)


def _body(model: ModelCard, question: Question, url: str) -> dict[str, Any]:
    """The generate request for ``question``: values by input name, request parameters below ``parameters``."""
    whole = question.body or {}
    tensors = question.tensors if question.body is None else _tensors(model, whole, url)
    body: dict[str, Any] = {name: _value(model.inputs[name], array, url) for name, array in tensors.items()}
    parameters = {**whole.get("parameters", {}), **question.parameters}
    return {**body, "parameters": parameters} if parameters else body


def _tensors(model: ModelCard, request: dict[str, Any], url: str) -> dict[str, NDArray[Any]]:
    """The tensors of a whole v2 request."""
    tensors = {}
    for entry in request["inputs"]:
        card = model.inputs.get(entry["name"])
        if card is None:
            raise invalid_arg(f"'{entry['name']}' is not an input: {model.signature()}")
        try:
            values = np.array(entry["data"], dtype=object if card.datatype == "BYTES" else None)
            tensors[card.name] = values.reshape(entry["shape"])
        except (KeyError, TypeError, ValueError):
            _refuse(url, f"input {card} has no 'data' that fills its 'shape'")
    return tensors


def _value(card: TensorCard, array: NDArray[Any], url: str) -> Any:
    """``array`` as generate has it: one value, or a flat list whose shape follows from the model's."""
    read_as = _read_as(card.shape, array.size)
    if read_as != array.shape:
        _refuse(url, f"input {card} has shape {list(array.shape)}, and would be read as {list(read_as)}")
    try:
        values = [item.decode() if isinstance(item, bytes) else item for item in array.reshape(-1).tolist()]
    except UnicodeDecodeError:
        _refuse(url, f"input {card} holds bytes that are no text")
    return values[0] if len(values) == 1 else values


def _read_as(dims: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The shape that the server gives ``count`` values: the innermost open dimension takes what the others leave."""
    left = count // max(1, math.prod(dim for dim in dims if dim != -1))
    shape: list[int] = []
    for dim in reversed(dims):
        shape.append(left if dim == -1 else dim)
        left = 1 if dim == -1 else left
    return tuple(reversed(shape))


def _refuse(url: str, problem: str) -> NoReturn:
    raise invalid_arg(
        f"a decoupled model is asked at {url}, where an input is one value or a flat list of numbers or texts, and its "
        f"shape follows from the model's; {problem}"
    )
