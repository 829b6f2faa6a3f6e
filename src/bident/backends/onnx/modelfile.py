"""The model file on disk: where it is, which edition it is, and what is wrong with a bad one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from bident.backends.base import ModelFiles
from bident.errors import ConfigError
from bident.model.config import ModelConfig
from bident.model.files import LARGEST_PROTOBUF_BYTES

Edition: TypeAlias = tuple[str, int, int, int]
"""Which file it is and in which state: path, inode, size, modification time in ns."""

_HEAD_BYTES = 512
_PUBLIC_DOMAINS = frozenset(
    {
        "",
        "ai.onnx",
        "ai.onnx.ml",
        "ai.onnx.training",
        "ai.onnx.preview.training",
        "com.microsoft",
        "com.microsoft.nchwc",
    }
)

_STRANGERS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"GGUF", "it is a GGUF language model: the text engine serves it, not this backend"),
    (0, b"PK\x03\x04", "it is a zip archive (often a PyTorch .pt checkpoint): export it with torch.onnx.export"),
    (0, b"\x80", "it is a Python pickle (joblib, scikit-learn, PyTorch): export it with skl2onnx or torch.onnx.export"),
    (0, b"\x1f\x8b", "it is a gzip archive: unpack it with gunzip"),
    (0, b"\x89HDF", "it is an HDF5 file (Keras): export it with tf2onnx"),
    (4, b"TFL3", "it is a TensorFlow Lite model: convert it with tf2onnx"),
    (4, b"ORTM", 'it is an ORT-format model: name it model.ort and set default_model_filename: "model.ort"'),
    (0, b"{", 'it is JSON or UBJSON (an XGBoost model?): serve that with backend: "fil"'),
)


def find_model_file(files: ModelFiles, config: ModelConfig) -> Path:
    """The ONNX file: ``model.onnx``, or ``model.onnx`` in a folder of that name (external weights).

    Raises ConfigError that lists what was looked for and what is there.
    """
    path = files.model_file(config, "model.onnx")
    if not path.is_dir():
        return path
    inner = path / "model.onnx"
    if inner.is_file():
        return inner
    found = ", ".join(repr(entry.name) for entry in sorted(path.iterdir()))
    raise ConfigError(
        f"unable to find '{inner}' for model '{config.name}': a folder '{path.name}' must hold the model as "
        f"'model.onnx' with its weight files beside it; it holds {found or 'nothing'}"
    )


def edition(path: Path) -> Edition:
    """Changes whenever the file does."""
    status = path.stat()
    return (str(path), status.st_ino, status.st_size, status.st_mtime_ns)


def folder_edition(path: Path) -> tuple[Edition, ...]:
    """Changes whenever any file beside ``path`` does: the model's weights may lie there."""
    return tuple(sorted(edition(entry) for entry in path.parent.iterdir() if entry.is_file()))


def diagnose(path: Path) -> str:
    """What a file that ONNX Runtime refused really is, and the cure; empty when nothing looks wrong.

    Looks at the file itself, never at an error's text.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        size = path.stat().st_size
    except OSError as error:
        return f"the file cannot be read ({error.strerror or error}): check its permissions and its disk"
    if not size:
        return "the file is empty (0 bytes): copy or export it again"
    if head.startswith(b"version https://git-lfs"):
        return "the file is a Git LFS pointer, not the model itself: run 'git lfs pull' in the repository it came from"
    if head.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html", b"<?xml", b"<head")):
        return "the file is a web page, not a model: download it again from the link to the raw file"
    for offset, magic, cure in _STRANGERS:
        if head[offset:].startswith(magic):
            return f"the file is not ONNX: {cure}"
    if size >= LARGEST_PROTOBUF_BYTES:
        return (
            f"the file has {size} bytes, an ONNX file less than {LARGEST_PROTOBUF_BYTES}: save the model with its "
            f"weights beside it (save_as_external_data)"
        )
    return _diagnose_graph(path, size)


def _diagnose_graph(path: Path, size: int) -> str:
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(path, format="protobuf", load_external_data=False)
    except DecodeError:
        return (
            f"the file's {size} bytes are not a complete ONNX model, it is truncated or damaged: compare its size or "
            f"checksum with the original and copy it again"
        )
    if not model.HasField("graph"):
        return f"the file's {size} bytes hold no ONNX graph: export the model again"
    return next(weight_file_problems(path, model.graph), "") or _foreign(model) or _newer(model)


def _newer(model: Any) -> str:
    """Whether the model is newer than the installed ``onnx`` knows, which is of about ONNX Runtime's age."""
    import onnx

    opset = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)
    if model.ir_version <= onnx.IR_VERSION and opset <= onnx.defs.onnx_opset_version():
        return ""
    return (
        f"it is of IR version {model.ir_version} and opset {opset}, newer than this installation knows: upgrade "
        f"onnxruntime, or export the model with a lower opset"
    )


def _foreign(model: Any) -> str:
    """Operator domains that ONNX Runtime does not bring along."""
    own = sorted({entry.domain for entry in model.opset_import} - _PUBLIC_DOMAINS)
    own = [domain for domain in own if any(node.domain == domain for node in model.graph.node)]
    if own:
        return (
            f"it uses operators of {', '.join(repr(domain) for domain in own)}, which ONNX Runtime does not bring: "
            f"name their library in model_operations {{ op_library_filename: [ ... ] }}"
        )
    return ""


def weight_file_problems(path: Path, graph: Any) -> Iterator[str]:
    """One line per weight that lies in an external file and cannot be had from it."""
    for tensor in graph.initializer:
        if not tensor.external_data:
            continue
        where = {entry.key: entry.value for entry in tensor.external_data}
        name = where.get("location", "")
        weights = path.parent / name
        if not weights.is_file():
            yield (
                f"its weights are in '{name}', which is missing from {path.parent}: copy it there beside the model "
                f"file, under that very name"
            )
            continue
        end = int(where.get("offset", "0")) + int(where.get("length", "0"))
        size = weights.stat().st_size
        if end > size:
            yield f"its weight file '{name}' is cut short ({size} bytes, {end} needed): copy it again"
