"""Writes a model folder around a ``model.py``: what its code does not say is left for its owner to fill in.

Models that carry code are run only because their owner put them into the repository: adding one's own
file is that allowance. Here it is parsed and copied, never run.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bident.cli.detect import PYTHON_MODEL
from bident.zoo.folder import model_path

EDIT = "EDIT"
"""What marks a line of the configuration that cannot be served as it is."""

_HEAD = """\
# Made by 'bident add' from {origin}. Real Triton reads this file unchanged.

# What runs the model: a process of its own for each instance.
backend: "python"
"""
_COMPLETES_ITSELF = """
# Nothing more is needed: auto_complete_config in {file} declares inputs, outputs and max_batch_size.
# What is declared here as well must agree with it.
"""
_BATCH = """
# 0: no batch dimension, each request as it is. With max_batch_size: 8, tensors begin with a dimension of up to 8
# rows, which dims below leave out, and dynamic_batching { } lets requests that wait run together.
max_batch_size: 0
"""
_TENSORS = """
# Inputs and outputs by the names that the code uses. On every line marked EDIT say what the code expects:
# data_type: TYPE_STRING, TYPE_FP32, TYPE_INT64, TYPE_UINT8, TYPE_BOOL, ...; dims: [ 3, 224, 224 ], -1 is any size.
"""
_TENSOR = '{kind} [ {{ name: "{name}"  data_type: TYPE_INVALID  dims: [ -1 ] }} ]  # {mark}{what}\n'
_MORE = """
# More that can be set here:
#   instance_group [ { count: 2 } ]                                              two processes
#   model_transaction_policy { decoupled: true }                                 any number of answers to a request
#   parameters { key: "EXECUTION_ENV_PATH" value { string_value: "/path/to/venv" } }  its own packages
"""


@dataclass(frozen=True)
class Source:
    """What can be read from a ``model.py``: the tensors it names, and whether it declares them itself."""

    completes_itself: bool
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> Source:
        """Parse ``path``, which has been seen to be Python."""
        tree = ast.parse(path.read_bytes(), path.name)
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        # get_input_tensor_by_name(request, "TEXT") and Tensor("LABEL", array): names as they are written mostly.
        return cls(
            "auto_complete_config" in defined,
            tuple(dict.fromkeys(_texts(tree, "get_input_tensor_by_name", 1))),
            tuple(dict.fromkeys(_texts(tree, "Tensor", 0))),
        )


def write_files(source: Path, folder: Path) -> None:
    """Fill the empty ``folder`` with ``source`` as version 1, and the configuration as far as it is known."""
    shutil.copyfile(source, model_path(folder, PYTHON_MODEL.file_name))
    (folder / "config.pbtxt").write_text(_config(Source.read(source), source.name), encoding="utf-8")


def lines_to_edit(folder: Path) -> list[int]:
    """The numbers of the lines in ``folder``'s configuration that have to be filled in."""
    lines = (folder / "config.pbtxt").read_text(encoding="utf-8").splitlines()
    return [number for number, line in enumerate(lines, 1) if f"# {EDIT}" in line]


def _config(found: Source, origin: str) -> str:
    head = _HEAD.format(origin=origin)
    if found.completes_itself:
        return head + _COMPLETES_ITSELF.format(file=PYTHON_MODEL.file_name) + _MORE
    tensors = [*_declared("input", found.inputs, "INPUT"), *_declared("output", found.outputs, "OUTPUT")]
    return head + _BATCH + _TENSORS + "".join(tensors) + _MORE


def _declared(kind: str, names: tuple[str, ...], stand_in: str) -> Iterator[str]:
    for name in names or (stand_in,):
        what = "" if names else ": the name, too"
        yield _TENSOR.format(kind=kind, name=name, mark=EDIT, what=what)


def _texts(tree: ast.AST, function: str, place: int) -> Iterator[str]:
    """The texts that calls of ``function`` have at ``place``; not those in a question to another model."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls.sort(key=lambda call: (call.lineno, call.col_offset))
    asked = {id(inner) for call in calls if _name(call.func) == "InferenceRequest" for inner in ast.walk(call)}
    for call in calls:
        if id(call) not in asked and _name(call.func) == function and len(call.args) > place:
            value = call.args[place]
            if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value.isprintable():
                yield value.value.replace("\\", "\\\\").replace('"', '\\"')


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
