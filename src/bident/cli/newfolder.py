"""Writes a model folder around a model file: the file in place, and a config.pbtxt that explains itself."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from bident.backends.base import Backend, ModelFiles
from bident.backends.discovery import Backends
from bident.cli import newpython
from bident.cli.detect import ModelFile
from bident.errors import Code, ConfigError, ServeError, invalid_arg
from bident.model import autofill, normalise, validate
from bident.model.config import ModelConfig
from bident.model.proto import ModelConfigProto, pb
from bident.zoo.folder import model_path, staged

_COMMENTS = {
    "name": "The folder's name, and what clients ask for: /v2/models/<name>/infer.",
    "backend": "What runs the model.",
    "platform": "Triton's older word for backend and file format.",
    "max_batch_size": "The most rows that run together. 0 would mean: no batch dimension, one request at a time.",
    "input": "Inputs as the model file declares them. dims leave out the batch dimension; -1 is any size.",
    "output": "Outputs, likewise. A text file with one label a line beside this one makes classes readable:\n"
    'add label_filename: "labels.txt" to the output.',
    "instance_group": "How many copies of the model are loaded, and so may run at the same time.",
    "dynamic_batching": "Requests that wait for a free instance are put together into one batch. To hold a batch\n"
    "back for company, add max_queue_delay_microseconds.",
    "parameters": "What the backend must know beyond that. For trees: the file's format; whether it classifies\n"
    "(Triton demands to be told: by is_classifier from 25.09 on, by output_class before); threshold, which\n"
    "it demands of every classifier: from which probability on the answer is class 1, where there are two\n"
    'classes; predict_proba "true": answer the probabilities of all classes (the output\'s dims are then\n'
    "their number, as 'bident add --proba' writes them).",
    "default_model_filename": "The model file in the version folder.",
}
_ONNX_ROWS = 64
"""The most rows of an ONNX model whose batch dimension is free. What Triton would take, 4, is soon in the way."""
_COMMENTS_ONNX = {
    "max_batch_size": "The most rows that run together, and of one request. The model file leaves its batch dimension\n"
    f"free, so this is a choice: {_ONNX_ROWS} suits most models; Triton's default would be 4. Raise it for small\n"
    "models, lower it where memory is short. 0 would mean: no batch dimension, one request at a time."
}
_MORE = """\
# More that can be set here:
#   instance_group [ { count: 2 } ]              two copies of the model
#   version_policy { latest { num_versions: 2 } } serve the two newest version folders, not only the newest
"""


def folder_name(path: Path) -> str:
    """A model name made of the file's."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", path.stem).strip("_") or "model"


def check_name(name: str) -> None:
    """Raise INVALID_ARG unless ``name`` can be a folder and a part of a URL."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
        raise invalid_arg(f"'{name}' cannot be a model name; use letters, digits, '_', '-' and '.'")


def write_folder(source: Path, found: ModelFile, repository: Path, name: str, *, proba: bool = False) -> ModelConfig:
    """Make ``repository/name`` with ``source`` as its version 1; its completed configuration.

    ``proba``: a tree classifier that answers probabilities. The folder appears whole or not at all.
    Raises ALREADY_EXISTS, or what the backend finds wrong.
    """
    folder = repository / name
    with _new(folder) as staging:
        target = model_path(staging, found.file_name)
        try:
            shutil.copyfile(source, target)
            if found.backend == "onnxruntime":
                _copy_external_data(source, target.parent)
            config = _complete(ModelFiles(staging, 1), found, name, proba=proba)
        except ServeError as error:
            # The staged copy is gone when this is read; what the user can look at is the file itself.
            message = error.message.replace(str(target), str(source)).replace(str(staging), str(folder))
            raise ServeError(error.code, message) from None
        (staging / "config.pbtxt").write_text(commented(config.to_proto(), source.name), encoding="utf-8")
    return config


def write_python_folder(source: Path, repository: Path, name: str) -> list[int]:
    """Make ``repository/name`` with the ``model.py`` at ``source``; the lines of its config.pbtxt to fill in.

    Like :func:`write_folder`, but that nothing can be completed: only the code could say.
    """
    with _new(repository / name) as staging:
        newpython.write_files(source, staging)
        return newpython.lines_to_edit(staging)


@contextmanager
def _new(folder: Path) -> Iterator[Path]:
    """A folder to fill that becomes ``folder``, whole or not at all."""
    if folder.exists():
        raise ServeError(
            Code.ALREADY_EXISTS, f"{folder} exists; choose another --name, or add a version folder to it yourself"
        )
    with _no_empty_repository(folder.parent), staged(folder) as staging:
        yield staging


@contextmanager
def _no_empty_repository(repository: Path) -> Iterator[None]:
    """Take the repository away again where it was made for a model that could not be added."""
    missing = [folder for folder in (repository, *repository.parents) if not folder.exists()]
    try:
        yield
    except BaseException:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()
        raise


def _complete(files: ModelFiles, found: ModelFile, name: str, *, proba: bool) -> ModelConfig:
    message = pb.ModelConfig(name=name, backend=found.backend)
    _set_parameters(message, dict(found.parameters))
    autofill.fill_backend(message, files.directory, [files.version])
    backend = Backends({"onnxruntime": {"default-max-batch-size": str(_ONNX_ROWS)}}).get(found.backend)
    if found.backend == "fil":
        _set_parameters(message, _tree_parameters(backend, files, message, proba=proba))
    elif proba:
        raise invalid_arg(f"--proba is for tree models, whose answer it chooses; {found.what} models have theirs fixed")
    config = backend.complete(files, ModelConfig.from_proto(message))
    # What the server will make of it, so that a folder it would refuse is never written.
    understood = config.to_proto()
    normalise.apply(understood, backend.default_instance_count)
    validate.check(understood, "config.pbtxt")
    return config


def _tree_parameters(backend: Backend, files: ModelFiles, message: ModelConfigProto, *, proba: bool) -> dict[str, str]:
    """What a tree model's configuration must say about its answer, here or in a Triton.

    Whether it classifies is what the backend makes of a configuration that asks for probabilities.
    """
    backend.complete(files, ModelConfig.from_proto(message))  # raises what is wrong with the file itself
    asking = pb.ModelConfig()
    asking.CopyFrom(message)
    _set_parameters(asking, {"predict_proba": "true"})
    try:
        backend.complete(files, ModelConfig.from_proto(asking))
    except ConfigError:
        if proba:
            raise invalid_arg("--proba is for classifiers; this model is a regression or ranking") from None
        return _classifier("false")
    return {**_classifier("true"), "threshold": "0.5", **({"predict_proba": "true"} if proba else {})}


def _classifier(value: str) -> dict[str, str]:
    """Whether it classifies, under the name that Triton demands before 25.09, and under the one from then on."""
    return {"is_classifier": value, "output_class": value}


def _set_parameters(message: ModelConfigProto, values: dict[str, str]) -> None:
    for key, value in values.items():
        message.parameters[key].string_value = value


def commented(message: ModelConfigProto, origin: str) -> str:
    """``message`` in protobuf's text format, each field with a comment that says what it does."""
    free = message.backend == "onnxruntime" and message.max_batch_size > 1
    comments = {**_COMMENTS, **_COMMENTS_ONNX} if free else _COMMENTS
    parts = [f"# Made by 'bident add' from {origin}. Real Triton reads this file unchanged.\n"]
    for descriptor, value in sorted(message.ListFields(), key=_reading_order):
        parts.append("".join(f"# {line}\n" for line in comments.get(descriptor.name, "").splitlines()))
        parts[-1] += text_format.MessageToString(
            _only(descriptor, value), as_utf8=True, use_short_repeated_primitives=True
        )
    return "\n".join([*parts, _MORE])


def _reading_order(entry: tuple[Any, Any]) -> int:
    """What a reader wants to know first: the order of the comments, then whatever has none."""
    names = list(_COMMENTS)
    return names.index(entry[0].name) if entry[0].name in names else len(names)


def _only(descriptor: Any, value: Any) -> ModelConfigProto:
    """A message with nothing but one field of another one."""
    alone = pb.ModelConfig()
    part = getattr(alone, descriptor.name)
    if hasattr(part, "MergeFrom"):
        part.MergeFrom(value)
        if hasattr(part, "SetInParent"):
            # An empty message says something by being there: dynamic_batching {}.
            part.SetInParent()
    else:
        setattr(alone, descriptor.name, value)
    return alone


def _copy_external_data(source: Path, version_folder: Path) -> None:
    """Copy the files that hold an ONNX model's large tensors; their names are relative to the model."""
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(str(source), format="protobuf", load_external_data=False)
    except DecodeError:
        return  # it is damaged, which the backend explains better
    names = {
        entry.value for tensor in model.graph.initializer for entry in tensor.external_data if entry.key == "location"
    }
    for name in sorted(names):
        origin, target = source.parent / name, version_folder / name
        if not target.resolve().is_relative_to(version_folder.resolve()):
            raise invalid_arg(f"{source} refers to weights at '{name}', outside its folder; export it again")
        if not origin.is_file():
            raise invalid_arg(f"{source} keeps its weights in '{name}', which is not beside it; copy that file there")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(origin, target)
