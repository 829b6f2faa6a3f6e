"""Files that are not what their place says."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from bident.doctor.check import Weight
from tests.unit.doctor.ward import X_TO_Y, identity_onnx, only_seen, onnx_folder, put, python_folder, seen, write

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123\n"


@pytest.mark.parametrize("name", ["1/model.onnx", "config.pbtxt", "labels.txt"])
def test_git_lfs_pointers(tmp_path: Path, name: str) -> None:
    folder = onnx_folder(tmp_path)
    put(folder, name, POINTER)
    finding = only_seen(tmp_path, "git-lfs-pointer")
    assert finding.where.endswith(name)
    assert "lfs pull" in finding.cure
    assert seen(tmp_path, "damaged-file") == []


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"),
        (identity_onnx().SerializeToString()[:40], "truncated or damaged"),
        (b"<!DOCTYPE html><html>404", "web page"),
        (b"PK\x03\x04rest", "zip archive"),
        (b'{"learner": {}}', 'backend: "fil"'),
    ],
)
def test_files_that_are_no_onnx_model(tmp_path: Path, content: bytes, word: str) -> None:
    onnx_folder(tmp_path, model=content)
    assert word in only_seen(tmp_path, "damaged-file").seen


@pytest.mark.parametrize("content", [b'{"learner": {"attributes": {}', b"not trees at all", b"{}"])
def test_files_that_are_no_trees(tmp_path: Path, content: bytes) -> None:
    put(write(tmp_path, "m", 'backend: "fil" max_batch_size: 4'), "1/xgboost.json", content)
    assert "fil cannot read" in only_seen(tmp_path, "damaged-file").seen


def test_pickles(tmp_path: Path) -> None:
    put(write(tmp_path, "m", 'backend: "fil"'), "1/model.pkl", pickle.dumps({"a": np.ones(2)}))
    assert "never loaded" in only_seen(tmp_path, "pickle-file").seen
    folder = python_folder(tmp_path, name="p")
    put(folder, "1/vectoriser.joblib", pickle.dumps([1]))
    assert [finding.weight for finding in seen(tmp_path, "pickle-file")] == [Weight.BROKEN, Weight.RISK]


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return (Path.touch, (self.path,))


def test_nothing_of_a_model_is_executed(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    repository = tmp_path / "repository"
    folder = python_folder(repository, f"open({str(touched)!r}, 'w')\nclass TritonPythonModel:\n    execute = 1\n")
    put(folder, "1/weights.pkl", pickle.dumps(Bomb(touched)))
    put(folder, "1/sitecustomize.py", f"open({str(touched)!r}, 'w')")
    seen(repository)
    seen(repository, target="triton:25.05")
    assert not touched.exists()


def test_gguf_files(tmp_path: Path) -> None:
    put(write(tmp_path, "chat", None), "1/model.gguf", b"GGUF\3\0\0\0" + bytes(64))
    finding = only_seen(tmp_path, "gguf-in-repository")
    assert finding.cure.startswith(f"bident pull {tmp_path}/chat/1/model.gguf --as chat")


def test_what_is_in_order_is_not_mentioned(tmp_path: Path) -> None:
    onnx_folder(tmp_path, "onnx")
    onnx_folder(tmp_path, "completed", None)
    python_folder(tmp_path, name="python")
    put(tmp_path, ".git/config", "x")
    put(tmp_path, "onnx/.ipynb_checkpoints/model.onnx", "x")
    write(tmp_path, "identity", X_TO_Y.replace("onnxruntime", "identity"))
    (tmp_path / "identity" / "1").mkdir()
    assert seen(tmp_path) == []
    assert seen(tmp_path, target="triton:25.05") == []
