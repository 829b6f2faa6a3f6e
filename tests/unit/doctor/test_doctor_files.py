"""One model file, before it has a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from bident.doctor.examination import examine, patient_of, selected, treat
from tests.unit.backends.fil.fil_models import booster
from tests.unit.doctor.ward import MODEL_PY, identity_onnx, put


def checks_that_find(path: Path, target: str = "") -> list[str]:
    found = examine(patient_of(path, target), selected(only_path=True))
    assert not any("could not be finished" in finding.seen for finding in found), found
    return [finding.check for finding in found]


@pytest.mark.parametrize(
    ("name", "content", "target", "check"),
    [
        ("model.onnx", b"", "", "damaged-file"),
        ("model.onnx", b"GGUF\3\0\0\0", "", "gguf-in-repository"),
        ("clf.pkl", b"\x80\x04K\x01.", "", "pickle-file"),
        ("weights.bin", b"version https://git-lfs.github.com/spec/v1\n", "", "git-lfs-pointer"),
        ("model.py", b"import absent_package\nclass TritonPythonModel:\n    execute = print\n", "", "python-packages"),
        ("trees.json", bytes(booster().save_raw("json")), "triton:25.05", "xgboost-schema"),
        ("trees.ubj", bytes(booster().save_raw("ubj")), "triton:24.09", "xgboost-schema"),
    ],
)
def test_files_with_something_wrong(tmp_path: Path, name: str, content: bytes, target: str, check: str) -> None:
    assert checks_that_find(put(tmp_path, name, content), target) == [check]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.onnx", identity_onnx().SerializeToString()),
        ("model.py", MODEL_PY.encode()),
        ("trees.json", bytes(booster().save_raw("json"))),
        ("notes.txt", b"nothing to do with models"),
        ("data.json", b'{"a": 1}'),
    ],
)
def test_files_in_order(tmp_path: Path, name: str, content: bytes) -> None:
    assert checks_that_find(put(tmp_path, name, content)) == []


def test_an_ir_version_is_lowered_in_place(tmp_path: Path) -> None:
    model = identity_onnx()
    model.ir_version = 11
    path = put(tmp_path, "net.onnx", model)
    patient, checks = patient_of(path, "triton:25.05"), selected(only_path=True)
    treated, left = treat(patient, checks, examine(patient, checks))
    assert (len(treated), left) == (1, [])
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["net.onnx", "net.onnx.bak"]
