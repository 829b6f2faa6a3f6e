"""Tells what a model file is by its content, and which engine and backend it belongs to.

The file's name is no evidence: exports get renamed. Nothing is unpickled or run to find out.
"""

from __future__ import annotations

import ast
import re
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bident.errors import ServeError, invalid_arg

_HEAD_BYTES = 4096


@dataclass(frozen=True)
class ModelFile:
    """A model file that can be served: what it is, its backend, its name there, what the backend must be told."""

    what: str
    backend: str
    file_name: str
    parameters: tuple[tuple[str, str], ...] = ()


_ONNX = ModelFile("ONNX", "onnxruntime", "model.onnx")
PYTHON_MODEL = ModelFile("Python model", "python", "model.py")
_PYTHON_CLASS = "TritonPythonModel"


def _tree(what: str, model_type: str, file_name: str) -> ModelFile:
    return ModelFile(what, "fil", file_name, (("model_type", model_type),))


_XGBOOST_JSON = _tree("XGBoost, JSON", "xgboost_json", "xgboost.json")
_XGBOOST_UBJ = _tree("XGBoost, UBJSON", "xgboost_ubj", "xgboost.ubj")
_XGBOOST_LEGACY = _tree("XGBoost, old binary format", "xgboost", "xgboost.model")
_LIGHTGBM = _tree("LightGBM, text", "lightgbm", "model.txt")
_TREELITE = _tree("treelite checkpoint", "treelite_checkpoint", "checkpoint.tl")


def detect(path: Path) -> ModelFile:
    """What ``path`` holds. Raises INVALID_ARG with the way out for what cannot be served as it is."""
    if path.is_dir():
        raise invalid_arg(f"{path} is a folder; name the model file in it, or export the model to ONNX")
    if not path.is_file():
        raise invalid_arg(f"there is no file {path}")
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if not head:
        raise invalid_arg(f"{path} is empty")
    refusal = _refusal(path, head)
    if refusal:
        raise invalid_arg(f"{path} {refusal}")
    for looks_so, kind in _KINDS:
        if looks_so(head):
            return kind
    if path.suffix.lower() == ".py" or _PYTHON_CLASS.encode() in head:
        return _python(path)
    # What was to be ONNX and is not whole is the backend's to explain.
    if _is_onnx(path) or _looks_like_onnx(path, head):
        return _ONNX
    raise _unknown(path)


def _refusal(path: Path, head: bytes) -> str:
    """Why a file that is recognised cannot be added, and what to do; empty for all others."""
    if head.startswith(b"GGUF"):
        return f"is a GGUF model: it belongs to the text engine; give it that with 'bident pull {path}'"
    if re.match(rb"\x80[\x02-\x05]", head):
        return _PICKLE
    if head.startswith(b"PK\x03\x04"):
        return _archive(path)
    if head.startswith(b"\x89HDF"):
        return "is an HDF5 file, as Keras writes them: convert it with tf2onnx and add the ONNX file"
    if head[4:8] == b"TFL3":
        return "is a TensorFlow Lite model: convert it with tf2onnx --tflite and add the ONNX file"
    if re.match(rb".{8}\{\s*\"", head, re.DOTALL) and struct.unpack("<Q", head[:8])[0] < path.stat().st_size:
        return "is a safetensors file: it holds weights without a model; export the model with its weights to ONNX"
    if b"<net " in head[:512]:
        return "is an OpenVINO model, for which there is no backend yet; export the original model to ONNX"
    return ""


_PICKLE = (
    "is a Python pickle: opening it would run whatever code it holds. "
    "Export the model instead (scikit-learn: skl2onnx; XGBoost and LightGBM: save_model), and add that file"
)


def _archive(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except zipfile.BadZipFile:
        return "starts as a zip archive and is damaged"
    if any(name.endswith("/data.pkl") for name in names):
        code = any("/code/" in name for name in names)
        kind = "a TorchScript model, for which there is no backend yet" if code else "a PyTorch checkpoint: a pickle"
        return f"is {kind}; export the model with torch.onnx.export and add the ONNX file"
    if "config.json" in names and any(name.endswith(".h5") for name in names):
        return "is a Keras model: convert it with tf2onnx and add the ONNX file"
    return "is a zip archive; unpack it and add the model file in it"


def _is_xgboost_json(head: bytes) -> bool:
    return re.match(rb'\s*\{\s*"(learner|version|Config)"', head) is not None


def _is_xgboost_ubj(head: bytes) -> bool:
    # An UBJSON object whose first key is "learner": its length is a typed integer before it.
    return re.match(rb"\{[LlIUi].{1,8}(learner|version|Config)", head, re.DOTALL) is not None


def _is_xgboost_legacy(head: bytes) -> bool:
    # Either marked, or 136 bytes of parameters and then two counted names: objective and booster.
    at = 136
    if head.startswith(b"binf"):
        return True
    if len(head) < at + 16:
        return False
    (length,) = struct.unpack_from("<Q", head, at)
    return length < 64 and head[at + 8 + length + 8 :].startswith((b"gbtree", b"dart", b"gblinear"))


def _is_lightgbm(head: bytes) -> bool:
    return re.match(rb"tree\r?\nversion=v", head) is not None


def _is_treelite(head: bytes) -> bool:
    # A checkpoint starts with the version that wrote it: three small int32, the first of them 3 or 4.
    if len(head) < 12:
        return False
    major, minor, patch = struct.unpack_from("<iii", head)
    return major in (3, 4) and 0 <= minor < 100 and 0 <= patch < 100


_KINDS: tuple[tuple[Callable[[bytes], bool], ModelFile], ...] = (
    (_is_xgboost_json, _XGBOOST_JSON),
    (_is_xgboost_ubj, _XGBOOST_UBJ),
    (_is_xgboost_legacy, _XGBOOST_LEGACY),
    (_is_lightgbm, _LIGHTGBM),
    (_is_treelite, _TREELITE),
)


def _python(path: Path) -> ModelFile:
    """A model of Triton's Python backend, told by its class. The source is parsed, never run."""
    try:
        tree = ast.parse(path.read_bytes(), path.name)
    except (SyntaxError, ValueError) as error:
        raise invalid_arg(f"{path} is not Python that this Python can read: {error}") from None
    if not any(isinstance(node, ast.ClassDef) and node.name == _PYTHON_CLASS for node in ast.walk(tree)):
        raise invalid_arg(
            f"{path} has no class {_PYTHON_CLASS}, which is what the Python backend runs: write one with a method "
            "execute(self, requests), as 'bident zoo build text_classifier' shows"
        )
    return PYTHON_MODEL


def _is_onnx(path: Path) -> bool:
    import onnx
    from google.protobuf.message import DecodeError

    from bident.model.files import LARGEST_PROTOBUF_BYTES

    if path.stat().st_size >= LARGEST_PROTOBUF_BYTES:
        return False
    try:
        # Told the format: without it, the file's suffix would choose a parser for JSON or text.
        model = onnx.load(str(path), format="protobuf", load_external_data=False)
    except (DecodeError, ValueError, OSError):
        return False
    return bool(model.ir_version and model.graph.node)


def _looks_like_onnx(path: Path, head: bytes) -> bool:
    """Whether a file that is no whole ONNX model was to be one: it starts so, or is called so and is not text."""
    starts_so = re.match(rb"\x08[\x01-\x20][\x12\x1a\x22\x28\x32\x3a\x42\x72]", head) is not None
    return starts_so or (path.suffix.lower() == ".onnx" and b"\0" in head)


def _unknown(path: Path) -> ServeError:
    return invalid_arg(
        f"{path} is none of the models Bident knows: ONNX, XGBoost (JSON, UBJSON, old binary), LightGBM text, "
        "treelite checkpoint, model.py of Triton's Python backend. Export the model to ONNX and add that file"
    )
