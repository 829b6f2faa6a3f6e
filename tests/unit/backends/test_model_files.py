"""The files of a model that are opened: regular ones only, so that nobody waits for a pipe."""

from __future__ import annotations

import os

import pytest

from bident.backends.base import BackendOptions, ModelFiles
from bident.backends.fil.backend import FilBackend
from bident.backends.onnx.backend import OnnxBackend
from bident.backends.python import backend as python_backend
from bident.backends.python.backend import PythonBackend
from bident.errors import ConfigError
from bident.model import pbtxt
from bident.model.config import ModelConfig

CONFIG = ModelConfig.from_proto(pbtxt.parse(b'name: "m"', "x"))


@pytest.fixture
def files(tmp_path):
    (tmp_path / "m" / "1").mkdir(parents=True)
    return ModelFiles(tmp_path / "m", 1)


@pytest.mark.parametrize(
    ("backend", "name"), [(PythonBackend, "model.py"), (OnnxBackend, "model.onnx"), (FilBackend, "xgboost.json")]
)
@pytest.mark.parametrize("kind", ["a named pipe", "a device"])
def test_a_model_file_is_a_regular_file(files, tmp_path, backend, name, kind):
    path = files.version_directory / name
    if kind == "a device":
        path.symlink_to("/dev/zero")
    else:
        os.mkfifo(path)
    with pytest.raises(ConfigError, match=f"{name} is {kind}, not a regular file; put the model itself there"):
        backend(BackendOptions(cache_directory=tmp_path)).complete(files, CONFIG)


@pytest.mark.parametrize("place", ["1/library.py", "library.py"])
def test_a_source_beside_the_model_is_a_regular_file(files, tmp_path, place):
    (files.version_directory / "model.py").write_text("class TritonPythonModel: pass")
    os.mkfifo(files.directory / place)
    with pytest.raises(ConfigError, match=r"library\.py: it is not a regular file; put a file in its place"):
        PythonBackend(BackendOptions(cache_directory=tmp_path)).complete(files, CONFIG)


@pytest.mark.parametrize(("text", "may"), [("", False), ("auto_complete_config", True), ("#" * 200, True)])
def test_a_source_too_large_to_be_looked_through_is_left_to_the_model(files, monkeypatch, text, may):
    monkeypatch.setattr(python_backend, "_MAX_SOURCE_BYTES", 100)
    model = files.version_directory / "model.py"
    model.write_text(text)
    assert python_backend._may_complete(files, model) is may


def test_a_name_too_long_for_a_file_is_no_file(files):
    config = ModelConfig.from_proto(pbtxt.parse(b'name: "m" default_model_filename: "%s"' % (b"a" * 300), "x"))
    with pytest.raises(ConfigError, match="no model file for 'm' version 1"):
        files.model_file(config, "model.py")
