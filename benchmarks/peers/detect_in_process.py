"""yolo_detect without a server: the three steps of the ensemble, called one after the other in this process.

The steps' code is the served models' own, out of the same repository: whatever the server is slower by
is what serving costs.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

import bident.backends.python
from bident.model import pbtxt

WORKER = Path(bident.backends.python.__file__).parent / "worker"
"""Where ``triton_python_backend_utils`` lies, which every model.py imports."""

Detections = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int32], NDArray[np.object_]]
"""Boxes, scores, class ids and class names of one picture."""


class DetectInProcess:
    """The steps, ready to be called; from several threads at once if need be."""

    def __init__(self, repository: Path, threads: int) -> None:
        """``threads`` is how many ONNX Runtime has in the server."""
        before, after = (parameters(repository / name) for name in ("yolo_preprocess", "yolo_postprocess"))
        self._pre = load_model_file(repository / "yolo_preprocess")
        self._post = load_model_file(repository / "yolo_postprocess")
        self._size, self._max_pixels = int(before["INPUT_SIZE"]), int(before["MAX_PIXELS"])
        labels = (repository / "yolo_postprocess" / after["LABELS"]).read_text(encoding="utf-8").splitlines()
        self._labels = np.array([label.encode() for label in labels], dtype=object)
        names = ("confidence", "iou", "max_detections")
        self._limits = self._post.limits({name: after[name.upper()] for name in names}, {})
        self._session = _session(repository / "yolov8n" / "1" / "model.onnx", threads)

    def one(self, photo: bytes) -> Detections:
        """All three steps for one picture."""
        return self.together([photo])[0]

    def together(self, photos: Sequence[bytes]) -> list[Detections]:
        """All three steps for several pictures, which go through the network as one batch."""
        squares, placements = zip(*map(self._prepare, photos), strict=True)
        pixels = squares[0][None] if len(squares) == 1 else np.stack(squares)
        (candidates,) = self._session.run(None, {"images": pixels})
        return [self._detect(*pair) for pair in zip(candidates, placements, strict=True)]

    def _prepare(self, photo: bytes) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return self._pre.letterbox(self._pre.Picture(photo, self._max_pixels), self._size)

    def _detect(self, candidates: NDArray[np.float32], placement: NDArray[np.float32]) -> Detections:
        boxes, scores, class_ids = self._post.detect(candidates, placement, len(self._labels), **self._limits)
        return boxes, scores, class_ids, self._labels[class_ids]


def parameters(folder: Path) -> dict[str, str]:
    """The parameters of the config.pbtxt in ``folder``."""
    path = folder / "config.pbtxt"
    proto = pbtxt.parse(path.read_bytes(), str(path))
    return {key: value.string_value for key, value in proto.parameters.items()}


def load_model_file(folder: Path) -> ModuleType:
    """Import ``folder``/1/model.py, which finds its neighbours and ``triton_python_backend_utils`` as in a server."""
    file = folder / "1" / "model.py"
    spec = importlib.util.spec_from_file_location(f"{folder.name}_model", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    path = sys.path.copy()
    sys.path[:0] = [str(file.parent), str(WORKER)]
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path[:] = path
    return module


def _session(model: Path, threads: int) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    # As the server has it, see resnet_bench.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
