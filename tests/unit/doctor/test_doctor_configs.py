"""Pitfalls of configurations: their text, their words, their rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from bident.doctor.check import Weight
from bident.doctor.models.gpus import _DEVICES
from bident.errors import ConfigError
from tests.unit.doctor.ward import X_TO_Y, cure, load, only_seen, onnx_folder, put, python_folder, seen, write

ENSEMBLE = """
platform: "ensemble"
max_batch_size: 4
input [ {{ name: "in" data_type: TYPE_FP32 dims: [ 3 ] }} ]
output [ {{ name: "out" data_type: TYPE_FP32 dims: [ {dims} ] }} ]
ensemble_scheduling {{
  step [
    {{
      model_name: "{model}"  # the only one
      model_version: -1
      input_map {{ key: "{key}" value: "in" }}
      output_map {{ key: "y" value: "out" }}
    }}
  ]
}}
"""


def ensemble(repository: Path, model: str = "scaler", key: str = "x", dims: int = 3) -> Path:
    """An ensemble of one step, and the model ``scaler`` beside it."""
    onnx_folder(repository, "scaler")
    folder = write(repository, "whole", ENSEMBLE.format(model=model, key=key, dims=dims))
    (folder / "1").mkdir()
    return folder


def test_text_that_cannot_be_parsed(tmp_path: Path) -> None:
    onnx_folder(tmp_path, config=X_TO_Y.replace("max_batch_size", "max_batchsize"))
    finding = only_seen(tmp_path, "config-syntax")
    assert "did you mean 'max_batch_size'?" in finding.seen
    assert "3:1" in finding.seen


def test_utf16_is_saved_as_utf8(tmp_path: Path) -> None:
    folder = onnx_folder(tmp_path, config=X_TO_Y.encode("utf-16"))
    assert "UTF-16" in only_seen(tmp_path, "config-syntax").seen
    assert cure(tmp_path) == []
    load(folder)


def test_comments_beyond_ascii(tmp_path: Path) -> None:
    text = "\ufeff# 花的分类器\n# plain\n" + X_TO_Y.replace("max_batch_size: 4", "max_batch_size: 4  # größer")
    folder = onnx_folder(tmp_path, config=f'{text}parameters {{ key: "ort" value: {{ string_value: "#é" }} }}\n')
    assert only_seen(tmp_path, "non-ascii-config").weight is Weight.NOTE
    finding = only_seen(tmp_path, "non-ascii-config", "triton:25.05")
    assert finding.weight is Weight.BROKEN
    assert "a byte order mark at its start and comments that are not ASCII in line 1, 5" in finding.seen
    assert cure(tmp_path, "triton:25.05") == []
    assert (folder / "config.pbtxt").read_bytes().startswith(b"\n# plain\n")
    assert 'string_value: "#é"' in (folder / "config.pbtxt").read_text(encoding="utf-8")
    load(folder)


@pytest.mark.parametrize(
    ("written", "right"),
    [
        ('backend: "onnx"', 'backend: "onnxruntime"'),
        ('backend: "onnxruntime_onnx"', 'backend: "onnxruntime"'),
        ('backend: "OnnxRuntime"', 'backend: "onnxruntime"'),
        ('backend: "onnxruntme"', 'backend: "onnxruntime"'),
        ('platform: "onnxruntime"', 'backend: "onnxruntime"'),
        ('platform: "onnxruntime_onx"', 'platform: "onnxruntime_onnx"'),
    ],
)
def test_words_that_nobody_knows(tmp_path: Path, written: str, right: str) -> None:
    folder = onnx_folder(tmp_path, config=X_TO_Y.replace('backend: "onnxruntime"', written))
    assert only_seen(tmp_path, "backend-word").cure == f"write {right}"
    assert cure(tmp_path) == []
    assert right in (folder / "config.pbtxt").read_text()
    load(folder)


def test_a_word_like_no_other_has_no_cure_to_apply(tmp_path: Path) -> None:
    onnx_folder(tmp_path, config='backend: "zzz"')
    finding = only_seen(tmp_path, "backend-word")
    assert finding.fix is None
    assert "'onnxruntime'" in finding.cure


@pytest.mark.parametrize(
    ("config", "name", "word"),
    [
        ('platform: "tensorflow_savedmodel"', "1/model.savedmodel/saved_model.pb", "tf2onnx"),
        ('backend: "pytorch"', "1/model.pt", "torch.onnx.export"),
        (None, "1/model.plan", "ONNX file"),
        (None, "1/model.xml", "ONNX"),
    ],
)
def test_backends_that_are_not_here(tmp_path: Path, config: str | None, name: str, word: str) -> None:
    put(write(tmp_path, "m", config), name, b"whatever")
    assert word in only_seen(tmp_path, "backend-absent").cure
    assert seen(tmp_path, "backend-absent", target="triton:25.05") == []


def test_gpus_that_are_not_there(tmp_path: Path) -> None:
    folder = onnx_folder(tmp_path, config=f"{X_TO_Y}instance_group [ {{ kind: KIND_GPU gpus: [ 0 ] }} ]  # fast\n")
    with pytest.raises(ConfigError, match="KIND_GPU"):
        load(folder)
    finding = only_seen(tmp_path, "gpu-instances")
    assert "kind KIND_GPU and gpus [0]" in finding.seen
    if not any(device.exists() for device in _DEVICES):
        assert only_seen(tmp_path, "gpu-instances", "triton:25.05").weight is Weight.RISK
    assert cure(tmp_path) == []
    assert "# fast" in (folder / "config.pbtxt").read_text()
    load(folder)


def test_label_files(tmp_path: Path) -> None:
    labelled = X_TO_Y.replace('"y" data_type', '"y" label_filename: "labels.txt" data_type')
    folder = onnx_folder(tmp_path, config=labelled)
    assert only_seen(tmp_path, "label-files").fix is None
    put(folder, "label.txt", "a\nb\nc\n")
    assert cure(tmp_path) == []
    assert load(folder).labels == {"y": ["a", "b", "c"]}
    put(folder, "label.txt", "a\nb\n")
    finding = only_seen(tmp_path, "label-files")
    assert finding.weight is Weight.RISK
    assert "2 lines, and output 'y' has 3 classes" in finding.seen


def test_an_ensemble_that_names_an_absent_model(tmp_path: Path) -> None:
    folder = ensemble(tmp_path, "scalar")
    finding = only_seen(tmp_path, "ensemble-members")
    assert "step 0 names 'scalar'; did you mean 'scaler'?" in finding.seen
    assert cure(tmp_path) == []
    assert '"scaler"  # the only one' in (folder / "config.pbtxt").read_text()


def test_an_ensemble_that_maps_what_a_model_has_not(tmp_path: Path) -> None:
    ensemble(tmp_path, key="X1")
    assert "non-existing input X1 in model scaler" in only_seen(tmp_path, "ensemble-members").seen


def test_an_ensemble_whose_shapes_do_not_fit(tmp_path: Path) -> None:
    ensemble(tmp_path, dims=5)
    assert "inconsistent shape" in only_seen(tmp_path, "ensemble-members").seen


def test_an_ensemble_in_circles_is_only_named(tmp_path: Path) -> None:
    folder = ensemble(tmp_path)
    text = (folder / "config.pbtxt").read_text()
    (folder / "config.pbtxt").write_text(text.replace('key: "x" value: "in"', 'key: "x" value: "loop"'))
    assert "config-rules" in {finding.check for finding in seen(tmp_path)}


@pytest.mark.parametrize(
    ("more", "word", "cure"),
    [
        ("dynamic_batching { preferred_batch_size: [ 64 ] }", "preferred", ""),
        ("instance_group [ { count: 100000 } ]", "instances", "write a count of at most 1000"),
        ("response_cache { enable: true } sequence_batching { }", "Response Cache", "remove response_cache"),
        (
            'model_repository_agents { agents [ { name: "checksum" } ] }',
            "checksum",
            "Bident has no repository agents: remove",
        ),
    ],
)
def test_rules_of_triton(tmp_path: Path, more: str, word: str, cure: str) -> None:
    onnx_folder(tmp_path, config=f"{X_TO_Y}{more}\n")
    finding = only_seen(tmp_path, "config-rules")
    assert word in finding.seen
    assert finding.cure.startswith(cure)


def test_a_python_model_that_declares_nothing_is_left_to_itself(tmp_path: Path) -> None:
    python_folder(tmp_path, config='backend: "python"')
    assert seen(tmp_path) == []
