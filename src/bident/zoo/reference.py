"""Answers of plain ONNX Runtime, against which a server's can be held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from bident.zoo.recipe import Tensors


def run_onnx(path: Path, inputs: Tensors) -> dict[str, NDArray[Any]]:
    """Run the model at ``path`` once, on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))
