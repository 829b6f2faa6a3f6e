"""Pitfalls of folders and names of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from bident.doctor.check import Patient, Weight
from bident.doctor.examination import patient_of
from bident.doctor.models.repositories import RepositoryShape
from bident.errors import ServeError
from tests.unit.doctor.found import only
from tests.unit.doctor.ward import (
    X_TO_Y,
    cure,
    identity_onnx,
    load,
    only_seen,
    onnx_folder,
    put,
    python_folder,
    seen,
    write,
)


@pytest.mark.parametrize(
    ("name", "number"), [("v1", 1), ("V2", 2), ("01", 1), ("version_3", 3), ("1.0", 1), ("latest", 1)]
)
def test_version_folders_that_are_not_called_by_a_number(tmp_path: Path, name: str, number: int) -> None:
    folder = write(tmp_path, "m", X_TO_Y)
    put(folder, f"{name}/model.onnx", identity_onnx())
    assert only_seen(tmp_path, "version-folders").cure == f"rename it to {number}"
    assert cure(tmp_path) == []
    assert list(load(folder).instances) == [number]


def test_a_version_folder_in_the_way_is_not_overwritten(tmp_path: Path) -> None:
    folder = onnx_folder(tmp_path)
    put(folder, "v1/model.onnx", b"another")
    finding = only_seen(tmp_path, "version-folders")
    assert (finding.weight, finding.fix) == (Weight.RISK, None)


def test_a_model_file_beside_the_configuration(tmp_path: Path) -> None:
    folder = write(tmp_path, "m", X_TO_Y)
    put(folder, "model.onnx", identity_onnx())
    assert "beside the configuration" in only_seen(tmp_path, "version-folders").seen
    assert cure(tmp_path) == []
    load(folder)


def test_an_archive_in_a_folder_of_its_own_name(tmp_path: Path) -> None:
    onnx_folder(tmp_path / "m")
    assert "one level too deep" in only_seen(tmp_path, "version-folders").seen
    assert cure(tmp_path) == []
    load(tmp_path / "m")


def test_what_is_in_the_way_of_an_archive_stays(tmp_path: Path) -> None:
    folder = onnx_folder(tmp_path / "m", "m")
    put(tmp_path / "m", "config.pbtxt", X_TO_Y)
    (finding,) = seen(tmp_path, "version-folders")
    assert finding.fix is not None
    with pytest.raises(ServeError, match="exists"):
        finding.fix.apply()
    assert (folder / "1" / "model.onnx").is_file()


def test_a_folder_of_code_or_data_is_no_version(tmp_path: Path) -> None:
    folder = python_folder(tmp_path)
    put(folder, "model/weights.bin", b"123")
    put(folder, "v1_notes/readme.txt", "old")
    assert seen(tmp_path) == []


def test_an_ensemble_without_its_empty_folder(tmp_path: Path) -> None:
    onnx_folder(tmp_path, "first")
    ensemble = write(
        tmp_path,
        "both",
        """
        platform: "ensemble"
        max_batch_size: 4
        input [ { name: "in" data_type: TYPE_FP32 dims: [ 3 ] } ]
        output [ { name: "out" data_type: TYPE_FP32 dims: [ 3 ] } ]
        ensemble_scheduling { step [ {
          model_name: "first" model_version: -1
          input_map { key: "x" value: "in" } output_map { key: "y" value: "out" }
        } ] }
        """,
    )
    assert "no version folder" in only_seen(tmp_path, "version-folders").seen
    assert cure(tmp_path) == []
    load(ensemble)


def test_a_configuration_in_the_version_folder(tmp_path: Path) -> None:
    folder = onnx_folder(tmp_path, config=None)
    put(folder, "1/config.pbtxt", X_TO_Y)
    finding = only_seen(tmp_path, "config-place")
    assert finding.where.endswith("1/config.pbtxt")
    assert cure(tmp_path) == []
    assert (folder / "config.pbtxt").read_text() == X_TO_Y
    put(folder, "1/config.pbtxt", X_TO_Y)
    assert only_seen(tmp_path, "config-place").weight is Weight.RISK


def test_a_configuration_with_an_extension_too_many(tmp_path: Path) -> None:
    folder = onnx_folder(tmp_path, config=None)
    put(folder, "config.pbtxt.txt", X_TO_Y)
    assert "'config.pbtxt.txt' and no config.pbtxt" in only_seen(tmp_path, "config-place").seen
    assert cure(tmp_path) == []
    load(folder)


@pytest.mark.parametrize("name", ["resnet.onnx", "Model.ONNX", "model.onnx.txt"])
def test_a_model_file_under_another_name(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path, "m", X_TO_Y)
    put(folder, f"1/{name}", identity_onnx())
    assert f"'{name}'" in only_seen(tmp_path, "model-file-name").seen
    assert cure(tmp_path) == []
    load(folder)


def test_a_default_name_that_is_not_there(tmp_path: Path) -> None:
    folder = write(tmp_path, "m", f'{X_TO_Y}default_model_filename: "net.onnx"\n')
    put(folder, "1/model.onnx", identity_onnx())
    assert "there is no net.onnx" in only_seen(tmp_path, "model-file-name").seen
    assert cure(tmp_path) == []
    load(folder)


def test_an_empty_version_folder_has_no_cure_to_apply(tmp_path: Path) -> None:
    folder = write(tmp_path, "m", X_TO_Y)
    (folder / "1").mkdir()
    finding = only_seen(tmp_path, "model-file-name")
    assert finding.fix is None
    assert "it holds nothing" in finding.seen


def test_a_name_that_is_not_the_folders(tmp_path: Path) -> None:
    folder = onnx_folder(tmp_path, "copy", f'name: "original"\n{X_TO_Y}')
    assert 'name: "original" in the folder copy' in only_seen(tmp_path, "config-name").seen
    assert cure(tmp_path) == []
    assert load(folder).config.name == "copy"


def test_a_model_folder_taken_for_a_repository(tmp_path: Path) -> None:
    folder = onnx_folder(tmp_path, "m")
    finding = only(RepositoryShape(), Patient(repository=folder))
    assert "a model folder, not a repository" in finding.seen
    assert str(tmp_path) in finding.cure


def test_a_repository_inside_the_repository(tmp_path: Path) -> None:
    onnx_folder(tmp_path / "team", "m")
    onnx_folder(tmp_path, "other")
    put(tmp_path, "team/chat.gguf", b"GGUF\3\0\0\0" + bytes(64))
    (found,) = seen(tmp_path)
    assert "a repository inside the repository" in found.seen
    assert f"'bident doctor {tmp_path / 'team'}' examines it" in found.cure


def test_models_of_a_repository_inside_are_not_torn_apart(tmp_path: Path) -> None:
    onnx_folder(tmp_path / "team", "one")
    onnx_folder(tmp_path / "team", "two", config=X_TO_Y.replace('"y"', '"Y"'))
    assert not [finding for finding in seen(tmp_path) if finding.fix]


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    put(tmp_path, "notes/readme.md", "x")
    (write(tmp_path, "empty", None) / "1").mkdir()
    notes, empty = sorted(seen(tmp_path, "backend-unknown"), key=lambda finding: finding.where, reverse=True)
    assert "Could not determine backend for model 'notes'" in notes.seen
    assert "'empty'" in empty.seen
    assert notes.weight is Weight.BROKEN
    assert notes.cure.endswith("or take the folder away")


@pytest.mark.parametrize("name", ["forest.onnx", "net.ONNX"])
def test_a_model_file_whose_name_tells_no_backend(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path, "m", None)
    put(folder, f"1/{name}", identity_onnx())
    assert only_seen(tmp_path, "backend-unknown").cure == f"rename {name} to model.onnx"
    assert cure(tmp_path) == []
    load(folder)


def test_one_cause_is_said_once(tmp_path: Path) -> None:
    put(write(tmp_path, "chat", None), "1/model.gguf", b"GGUF\3\0\0\0" + bytes(64))
    put(write(tmp_path, "nofolder", None), "model.onnx", identity_onnx())
    put(write(tmp_path, "v", None), "v1/model.onnx", identity_onnx())
    assert [finding.check for finding in seen(tmp_path)] == ["gguf-in-repository", "version-folders", "version-folders"]


def test_what_lies_loose_in_a_repository(tmp_path: Path) -> None:
    folder = onnx_folder(tmp_path, "m", config=None)
    put(tmp_path, "config.pbtxt", f'name: "m"\n{X_TO_Y}')
    put(tmp_path, "model.onnx", identity_onnx())
    put(tmp_path, "chat.gguf", b"GGUF\3\0\0\0")
    put(tmp_path, "README.md", "about")
    put(tmp_path, "7/model.onnx", identity_onnx())
    seven, gguf, loose_config, loose = sorted(seen(tmp_path, "repository-shape"), key=lambda finding: finding.where)
    assert "version folder" in seven.seen
    assert loose_config.fix is not None
    assert gguf.cure == f"bident pull {tmp_path / 'chat.gguf'} --as chat"
    assert loose.cure == f"bident add {tmp_path / 'model.onnx'}"
    cure(tmp_path)
    assert load(folder).config.max_batch_size == 4


def test_what_a_path_is(tmp_path: Path) -> None:
    folder = onnx_folder(tmp_path, "m")
    assert patient_of(tmp_path, "").model is None
    assert patient_of(folder, "") == Patient(repository=tmp_path, model=folder)
    assert patient_of(folder / "1", "") == Patient(repository=tmp_path, model=folder)
    assert patient_of(folder / "1" / "model.onnx", "") == Patient(repository=tmp_path, model=folder)
    assert patient_of(folder / "config.pbtxt", "") == Patient(repository=tmp_path, model=folder)
    loose = put(tmp_path, "model.onnx", "")
    assert patient_of(loose, "") == Patient(model=loose)
    with pytest.raises(ServeError, match="there is no"):
        patient_of(tmp_path / "absent", "")
