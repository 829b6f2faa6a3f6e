"""Files that are no model, or only part of one: the error says which and how to cure it."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path

import numpy as np
import onnx
import onnx_models as build
import pytest
from onnx import TensorProto

from bident.backends.base import ModelFiles
from bident.backends.onnx.modelfile import diagnose
from bident.errors import ConfigError
from bident.model.files import LARGEST_PROTOBUF_BYTES

GOOD = build.matmul().SerializeToString()


def refusal(files: ModelFiles, text: str = "") -> str:
    with pytest.raises(ConfigError) as failure:
        build.load(files, build.config(text or build.x_to_y()))
    return failure.value.message


BAD_FILES = [
    (b"", "the file is empty (0 bytes)"),
    (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
        "Git LFS pointer, not the model itself: run 'git lfs pull'",
    ),
    (b"<!DOCTYPE html>\n<html><head>", "web page"),
    (b"\n  <HTML><body>404</body>", "web page"),
    (b"<?xml version='1.0'?><Error/>", "web page"),
    (b"PK\x03\x04rest", "zip archive"),
    (pickle.dumps({"weights": [1, 2]}), "Python pickle"),
    (b"GGUF\x03\0\0\0", "GGUF language model"),
    (b"\x1f\x8b\x08\0", "gzip archive"),
    (b"\x89HDF\r\n\x1a\n", "HDF5"),
    (b"\x1c\0\0\0TFL3", "TensorFlow Lite"),
    (b'{"learner": {}}', 'backend: "fil"'),
    (GOOD[:-10], "truncated or damaged"),
    (GOOD[: len(GOOD) // 2], "truncated or damaged"),
    (b"\xff" * 64, "truncated or damaged"),
    (b"\x08\x0a", "no ONNX graph"),
]


@pytest.mark.parametrize(("content", "said"), BAD_FILES, ids=[said for _, said in BAD_FILES])
@pytest.mark.parametrize("verb", ["load", "complete"])
def test_bad_file(tmp_path: Path, content: bytes, said: str, verb: str, capfd: pytest.CaptureFixture[str]) -> None:
    files = build.folder(tmp_path, content)
    act = build.load if verb == "load" else build.complete
    with pytest.raises(ConfigError) as failure:
        act(files, build.config(build.x_to_y() if verb == "load" else ""))
    assert said in failure.value.message
    assert failure.value.message.startswith("unable to load model 'm' from ")
    assert "model.onnx" in failure.value.message
    assert capfd.readouterr() == ("", "")


def test_every_prefix_of_a_model_is_refused(tmp_path: Path) -> None:
    for length in range(0, len(GOOD) - 1, 7):
        assert "model.onnx" in refusal(build.folder(tmp_path, GOOD[:length]))


def test_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = build.folder(tmp_path, b"whatever")

    def refuse(*_arguments: object, **_options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert "the file cannot be read (Permission denied): check its permissions" in refusal(files)


def test_no_file_at_all(tmp_path: Path) -> None:
    files = build.folder(tmp_path, GOOD)
    (files.version_directory / "model.onnx").rename(files.version_directory / "Model.ONNX")
    message = refusal(files)
    assert "looked for 'model.onnx'" in message
    assert "'Model.ONNX'" in message


def test_default_model_filename(tmp_path: Path) -> None:
    files = build.folder(tmp_path, GOOD)
    (files.version_directory / "model.onnx").rename(files.version_directory / "żółw.onnx")
    assert build.load(files, build.config(build.x_to_y() + ' default_model_filename: "żółw.onnx"'))


def external(tmp_path: Path, as_folder: bool) -> ModelFiles:
    """The model with its weights in ``weights.data``, in the version folder or in a folder ``model.onnx``."""
    files = ModelFiles(tmp_path / build.NAME, 1)
    place = files.version_directory / "model.onnx" if as_folder else files.version_directory
    place.mkdir(parents=True)
    onnx.save(
        build.matmul(), place / "model.onnx", save_as_external_data=True, location="weights.data", size_threshold=0
    )
    return files


@pytest.mark.parametrize("as_folder", [True, False])
def test_weights_in_a_file_of_their_own(tmp_path: Path, as_folder: bool) -> None:
    files = external(tmp_path, as_folder)
    instance = build.load(files, build.complete(files, build.config()))
    assert instance.execute({"x": np.ones((1, 3), np.float32)})["y"].tolist() == [[2.0, 2.0, 2.0]]


def test_weights_missing(tmp_path: Path) -> None:
    files = external(tmp_path, as_folder=True)
    (files.version_directory / "model.onnx" / "weights.data").rename(tmp_path / "weights.data")
    assert "its weights are in 'weights.data', which is missing" in refusal(files)


def test_weights_cut_short(tmp_path: Path) -> None:
    files = external(tmp_path, as_folder=True)
    (files.version_directory / "model.onnx" / "weights.data").write_bytes(b"123")
    assert "weight file 'weights.data' is cut short (3 bytes, 36 needed)" in refusal(files)


def test_folder_without_the_model(tmp_path: Path) -> None:
    files = external(tmp_path, as_folder=True)
    (files.version_directory / "model.onnx" / "model.onnx").unlink()
    message = refusal(files)
    assert "must hold the model as 'model.onnx'" in message
    assert "it holds 'weights.data'" in message


def one_node(operator: str, domain: str = "", element: int = TensorProto.FLOAT) -> onnx.ModelProto:
    network = build.model(
        [build.value("x", element, ["N", 3])],
        [build.value("y", element, ["N", 3])],
        [build.node(operator, ["x"], ["y"], domain=domain)],
    )
    if domain:
        network.opset_import.append(onnx.helper.make_opsetid(domain, 1))
    return network


def test_unknown_operator(tmp_path: Path) -> None:
    message = refusal(build.folder(tmp_path, one_node("Foo")))
    assert "onnx runtime error 10: This is an invalid model." in message
    assert message.count("model.onnx") == 1
    assert "No Op registered for Foo" in message
    assert "onnx.checker" in message


def test_custom_operator_without_its_library(tmp_path: Path) -> None:
    message = refusal(build.folder(tmp_path, one_node("Foo", "my.operators")))
    assert "operators of 'my.operators'" in message
    assert "op_library_filename" in message


@pytest.mark.parametrize("newer", ["ir_version", "opset"])
def test_model_newer_than_onnx_runtime(tmp_path: Path, newer: str) -> None:
    network = build.identity()
    if newer == "ir_version":
        network.ir_version = 999
    else:
        network.opset_import[0].version = 999
    message = refusal(build.folder(tmp_path, network))
    assert "999" in message
    assert "upgrade onnxruntime" in message
    assert "/onnxruntime_src/" not in message
    assert "[ONNXRuntimeError]" not in message
    assert "\n" not in message


def test_types_that_do_not_fit(tmp_path: Path) -> None:
    network = build.identity()
    network.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    message = refusal(build.folder(tmp_path, network))
    assert "Type Error" in message
    assert "onnx.checker" in message


def test_a_file_larger_than_any_onnx_model_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(GOOD)
    os.truncate(path, LARGEST_PROTOBUF_BYTES)  # a hole but for its beginning: it takes no room on the disk

    before = time.process_time()
    assert diagnose(path).startswith(f"the file has {LARGEST_PROTOBUF_BYTES} bytes, an ONNX file less than")
    assert time.process_time() - before < 0.1
