"""Finds out from the files which backend a model is for, where its config does not say.

Triton's rules, in Triton's order, then Bident's own for tree models. Tensors are not its business:
backends complete those.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bident.errors import ConfigError
from bident.model.hints import did_you_mean, listed
from bident.model.near_miss import advice
from bident.model.proto import ModelConfigProto


@dataclass(frozen=True)
class _Kind:
    """A kind of model file. ``own`` marks what Triton cannot guess (it would need a config)."""

    filename: str
    backend: str
    platform: str = ""
    own: bool = False


_KINDS = (
    _Kind("model.savedmodel", "tensorflow", "tensorflow_savedmodel"),
    _Kind("model.graphdef", "tensorflow", "tensorflow_graphdef"),
    _Kind("model.plan", "tensorrt", "tensorrt_plan"),
    _Kind("model.onnx", "onnxruntime", "onnxruntime_onnx"),
    _Kind("model.xml", "openvino"),
    _Kind("model.pt", "pytorch", "pytorch_libtorch"),
    _Kind("model.pt2", "pytorch", "torch_aoti"),
    _Kind("model.py", "python"),
    _Kind("xgboost.json", "fil", own=True),
    _Kind("xgboost.ubj", "fil", own=True),
    _Kind("xgboost.model", "fil", own=True),
    _Kind("model.txt", "fil", own=True),
    _Kind("checkpoint.tl", "fil", own=True),
)
_SUFFIXES = {".onnx": "onnxruntime", ".xml": "openvino", ".pt": "pytorch", ".py": "python", ".ubj": "fil", ".tl": "fil"}


def fill_backend(proto: ModelConfigProto, directory: Path, versions: list[int]) -> None:
    """Fill name, backend, platform and default_model_filename of ``proto`` where they are empty.

    ``directory`` is the model's folder, ``versions`` its version folders. Raises ConfigError that
    lists what was looked for and what was found when nothing tells the backend.
    """
    proto.name = proto.name or directory.name
    if proto.platform == "ensemble" or (proto.HasField("ensemble_scheduling") and not proto.backend):
        return
    if proto.backend:
        _complete(proto, _declared(proto))
    elif proto.platform:
        _complete(proto, _by_platform(proto))
    elif proto.default_model_filename:
        _complete(proto, _by_filename(proto))
    else:
        _from_files(proto, directory, versions)


def _declared(proto: ModelConfigProto) -> _Kind | None:
    """The kind of the declared backend: with platform or file name as declared, else its first kind."""
    kinds = [kind for kind in _KINDS if kind.backend == proto.backend and not kind.own]
    for kind in kinds:
        if proto.platform == kind.platform or proto.default_model_filename == kind.filename:
            return kind
    # TensorFlow has no usual kind: the platform must be said, or the file found.
    return kinds[0] if kinds and proto.backend != "tensorflow" else None


def _by_platform(proto: ModelConfigProto) -> _Kind:
    platform = proto.platform
    for kind in _KINDS:
        if kind.platform == platform:
            return kind
    backends = dict.fromkeys(kind.backend for kind in _KINDS)
    if platform in backends:
        cure = f"'{platform}' is a backend: write backend: \"{platform}\", and no platform"
    else:
        cure = did_you_mean(platform, [*(kind.platform for kind in _KINDS if kind.platform), "ensemble"])
    raise ConfigError(f"unexpected platform type '{platform}' for {proto.name}; {cure}")


def _by_filename(proto: ModelConfigProto) -> _Kind:
    filename = proto.default_model_filename
    for kind in _KINDS:
        if kind.filename == filename:
            return kind
    likely = _SUFFIXES.get(Path(filename).suffix, "")
    cure = f'add backend: "{likely}"' if likely else "add backend"
    raise ConfigError(
        f"unexpected platform type '' for {proto.name}: default_model_filename '{filename}' alone does not say "
        f"which backend runs it; {cure}"
    )


def _complete(proto: ModelConfigProto, kind: _Kind | None) -> None:
    if kind is None:
        return
    proto.backend = proto.backend or kind.backend
    proto.platform = proto.platform or kind.platform
    if not (proto.backend == "pytorch" and proto.runtime == "model.py"):
        proto.default_model_filename = proto.default_model_filename or kind.filename


def _from_files(proto: ModelConfigProto, directory: Path, versions: list[int]) -> None:
    for version in versions:
        present = _names(directory / str(version))
        for kind in _KINDS:
            if kind.filename in present:
                _complete(proto, kind)
                return
    near = advice(directory, versions, [kind.filename for kind in _KINDS])
    suffix = proto.name.partition(".")[2]
    if suffix and not near:  # Triton's way to name a custom backend: the model is called 'x.<backend>'
        proto.backend = suffix
        proto.default_model_filename = f"model.{suffix}"
        return
    folder = directory / str(versions[0]) if versions else directory
    raise ConfigError(
        f"Invalid model name: Could not determine backend for model '{proto.name}' with no backend in model "
        "configuration. Expected model name of the form 'model.<backend_name>'. "
        f"Looked for {', '.join(kind.filename for kind in _KINDS)} in {directory}/<version>; "
        f"{folder} holds {listed(sorted(_names(folder)))}; {near or 'name the file so, or set backend in config.pbtxt'}"
    )


def _names(directory: Path) -> set[str]:
    try:
        return {entry.name for entry in directory.iterdir()}
    except OSError:
        return set()
