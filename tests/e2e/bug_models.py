"""The repository that the tests of other servers' reported faults share: many models, one server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx
from asking import Answer, Asker
from model_folders import (
    DATATYPES,
    declared,
    onnx_identity,
    parameters,
    write_identity,
    write_model,
    x_to_y,
)
from serving import Gate, TensorServer


@dataclass(frozen=True)
class Shared:
    """The server that the tests of reported faults share, in explicit mode: models may be added to it."""

    server: TensorServer
    repository: Path
    gates: Path
    ask: Asker

    def gate(self, name: str) -> Gate:
        """The gate that holds up the model ``name`` of the repository."""
        return Gate(self.gates / name)

    def offer(self, name: str, config: str | None, **files: bytes | str | onnx.ModelProto) -> Answer:
        """Write a model folder (as ``write_model`` does) and ask the server to load it."""
        write_model(self.repository, name, config, **files)
        return self.ask.load(name)


ODD_NAMES = ("a b", "möd", "v1.2", "infer", "versions", "100%", "%41")


def write_repository(repository: Path, gates: Path) -> None:
    """Everything that is loaded when the server starts. ``gates`` holds the gates' files."""
    for datatype in DATATYPES:
        write_identity(repository, datatype.lower(), datatype)
    write_identity(repository, "rows", dims="[ 3 ]", more="max_batch_size: 4 dynamic_batching { }")
    write_identity(repository, "table", dims="[ -1, 3 ]")
    write_identity(repository, "square", dims="[ 2, 2 ]")
    write_identity(repository, "ragged", more="max_batch_size: 8 dynamic_batching { }")
    write_model(repository, "onnx_bytes", x_to_y("BYTES"), model_onnx=onnx_identity(["N"], 8))
    for name in ODD_NAMES:
        write_identity(repository, name)
    write_model(repository, "pair", f'backend: "identity"\n{_pair("[ 2 ]", "[ 1 ]")}')
    write_model(repository, "maybe", f'backend: "identity"\n{_pair("[ 1 ]", "[ 1 ]", "optional: true")}')
    folder = write_identity(repository, "labelled", dims="[ 3 ]")
    (folder / "config.pbtxt").write_text(
        f'backend: "identity"\nmax_batch_size: 4\n{x_to_y(dims="[ 3 ]", more=LABELS)}', encoding="utf-8"
    )
    (folder / "labels.txt").write_text("cat\ndög\n", encoding="utf-8")
    for name, dims in (("columns", "[ -1 ]"), ("column_table", "[ -1, 1 ]")):
        write_model(repository, name, f'backend: "identity"\n{_columns(dims)}')
    _write_gated(repository, gates)


LABELS = 'label_filename: "labels.txt"'


def _pair(x_dims: str, y_dims: str, more: str = "") -> str:
    return (
        declared("input", "x", dims=x_dims)
        + declared("input", "y", dims=y_dims, more=more)
        + declared("output", "from_x", dims=x_dims)
        + declared("output", "from_y", dims=y_dims)
    )


def _columns(dims: str) -> str:
    return (
        declared("input", "number", dims=dims)
        + declared("input", "text", "BYTES", dims)
        + declared("output", "same_number", dims=dims)
        + declared("output", "same_text", "BYTES", dims)
    )


def _write_gated(repository: Path, gates: Path) -> None:
    """Models of one instance that wait for their gate: ``held`` one request at a time, ``held8`` up to 8 rows."""
    for name, batching in (
        ("held", ""),
        ("held8", "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 200000 }"),
    ):
        gate = Gate(gates / name)
        held = gate.parameters() + parameters(LANE="thread")
        write_model(repository, name, f'backend: "gated"\n{x_to_y()}{batching}\n{held}')
