"""Pitfalls of tree models, for Bident and for releases of Triton."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from bident.doctor.check import Weight
from bident.doctor.examination import examine, patient_of, selected, treat
from tests.unit.backends.fil.fil_models import FEATURES, booster, document, rows
from tests.unit.doctor.ward import answer, cure, only_seen, put, seen, write

TARGET = "triton:25.05"
ROWS = rows(64)


def config(parameters: dict[str, str], width: int = 1) -> str:
    entries = ", ".join(f'{{ key: "{key}" value: {{ string_value: "{text}" }} }}' for key, text in parameters.items())
    return f"""
backend: "fil"
max_batch_size: 64
input [ {{ name: "input__0" data_type: TYPE_FP32 dims: [ {FEATURES} ] }} ]
output [ {{ name: "output__0" data_type: TYPE_FP32 dims: [ {width} ] }} ]
parameters [ {entries} ]
"""


COMPLETE = {"model_type": "xgboost_json", "output_class": "true", "threshold": "0.5"}


def tree_folder(
    repository: Path, parameters: dict[str, str] | None, *, ubj: bool = False, kind: str = "binary"
) -> Path:
    model = booster("multi:softprob", "classes") if kind == "classes" else booster()
    folder = write(repository, "trees", None if parameters is None else config(parameters))
    put(folder, "1/xgboost.ubj" if ubj else "1/xgboost.json", bytes(model.save_raw("ubj" if ubj else "json")))
    return folder


def without_new_fields(folder: Path) -> None:
    """As XGBoost 1.7 would have written the model."""
    content = document(booster())
    content["version"] = [1, 7, 6]
    content["learner"]["gradient_booster"]["model"].pop("cats", None)
    content["learner"]["learner_model_param"]["base_score"] = "5E-1"
    put(folder, "1/xgboost.json", json.dumps(content))


def test_parameters_that_triton_demands(tmp_path: Path) -> None:
    folder = tree_folder(tmp_path, {"model_type": "xgboost_json"})
    without_new_fields(folder)
    assert only_seen(tmp_path, "fil-parameters").weight is Weight.RISK  # Bident finds them out
    finding = only_seen(tmp_path, "fil-parameters", TARGET)
    assert finding.weight is Weight.BROKEN
    assert "output_class, threshold for Triton 25.05" in finding.seen
    assert "Required parameter output_class not found" in finding.cause
    before = answer(folder, {"input__0": ROWS})["output__0"]
    assert cure(tmp_path, TARGET) == []
    np.testing.assert_array_equal(answer(folder, {"input__0": ROWS})["output__0"], before)


def test_a_threshold_without_effect_is_demanded_by_triton_alone(tmp_path: Path) -> None:
    folder = tree_folder(tmp_path, {"model_type": "xgboost_json", "is_classifier": "true", "predict_proba": "true"})
    without_new_fields(folder)
    assert seen(tmp_path) == []
    assert only_seen(tmp_path, "fil-parameters", "triton:25.09").seen == "no parameter threshold for Triton 25.09"


def test_an_older_triton_knows_output_class_alone(tmp_path: Path) -> None:
    folder = tree_folder(tmp_path, {"model_type": "xgboost_json", "is_classifier": "true", "threshold": "0.5"})
    without_new_fields(folder)
    assert seen(tmp_path) == []
    assert seen(tmp_path, target="triton:25.09") == []
    assert "output_class" in only_seen(tmp_path, "fil-parameters", "triton:25.08").seen
    assert cure(tmp_path, "triton:25.08") == []


@pytest.mark.parametrize(("kind", "ubj"), [("binary", False), ("classes", True)])
def test_a_file_too_new_for_a_release_becomes_a_checkpoint(tmp_path: Path, kind: str, *, ubj: bool) -> None:
    folder = tree_folder(
        tmp_path, {**COMPLETE, "model_type": "xgboost_ubj" if ubj else "xgboost_json"}, ubj=ubj, kind=kind
    )
    assert seen(tmp_path) == []
    finding = only_seen(tmp_path, "xgboost-schema", TARGET)
    assert "written by XGBoost 3." in finding.seen
    assert "reads files up to 3.0" in finding.seen
    before = answer(folder, {"input__0": ROWS})["output__0"]
    assert cure(tmp_path, TARGET) == []
    text = (folder / "config.pbtxt").read_text()
    assert 'key: "model_type" value: { string_value: "treelite_checkpoint" }' in text
    assert struct.unpack_from("<i", (folder / "1" / "checkpoint.tl").read_bytes()) == (4,)
    np.testing.assert_array_equal(answer(folder, {"input__0": ROWS})["output__0"], before)


def test_every_version_is_converted_since_they_share_the_configuration(tmp_path: Path) -> None:
    folder = tree_folder(tmp_path, {**COMPLETE, "cpu_nthread": "1"})
    put(folder, "2/xgboost.json", (folder / "1" / "xgboost.json").read_bytes())
    assert cure(tmp_path, TARGET) == []
    names = sorted(str(path.relative_to(folder)) for path in folder.glob("*/*"))
    assert names == ["1/checkpoint.tl", "1/xgboost.json.bak", "2/checkpoint.tl", "2/xgboost.json.bak"]
    assert 'key: "cpu_nthread"' in (folder / "config.pbtxt").read_text()


def test_files_that_a_release_reads_are_left_alone(tmp_path: Path) -> None:
    folder = tree_folder(tmp_path, COMPLETE)
    without_new_fields(folder)
    assert seen(tmp_path, target=TARGET) == []
    assert "up to 1.6" in only_seen(tmp_path, "xgboost-schema", "triton:24.01").seen


def test_what_cannot_be_written_here_is_not_promised(tmp_path: Path) -> None:
    tree_folder(tmp_path, COMPLETE)
    finding = only_seen(tmp_path, "xgboost-schema", "triton:24.01")
    assert finding.fix is None
    assert "treelite 3, which cannot be written here" in finding.cure


def test_what_is_not_known_is_said_so(tmp_path: Path) -> None:
    tree_folder(tmp_path, COMPLETE)
    finding = only_seen(tmp_path, "xgboost-schema", "triton:26.05")
    assert finding.weight is Weight.NOTE
    assert "not known here" in finding.seen


def test_ubjson_before_it_was_known(tmp_path: Path) -> None:
    tree_folder(tmp_path, {**COMPLETE, "model_type": "xgboost_ubj"}, ubj=True)
    assert "it is UBJSON" in only_seen(tmp_path, "xgboost-schema", "triton:24.09").seen
    assert cure(tmp_path, "triton:24.09") == []


def test_model_type_that_is_not_the_files(tmp_path: Path) -> None:
    folder = tree_folder(tmp_path, {**COMPLETE, "model_type": "xgboost_ubj"}, ubj=True)
    (folder / "1" / "xgboost.ubj").rename(folder / "1" / "xgboost.json")
    (folder / "config.pbtxt").write_text(config(COMPLETE))
    assert "is XGBoost UBJSON" in only_seen(tmp_path, "fil-model-type").seen
    assert cure(tmp_path) == []
    answer(folder, {"input__0": ROWS})


def test_a_configuration_that_fil_would_not_complete(tmp_path: Path) -> None:
    folder = tree_folder(tmp_path, None)
    assert only_seen(tmp_path, "fil-declaration").weight is Weight.RISK
    assert "no config.pbtxt" in only_seen(tmp_path, "fil-declaration", TARGET).seen
    assert cure(tmp_path, TARGET) == []
    text = (folder / "config.pbtxt").read_text()
    assert 'name: "input__0"' in text
    assert 'name: "output__0"' in text
    assert "max_batch_size" in text
    answer(folder, {"input__0": ROWS})


def test_names_that_fil_does_not_know(tmp_path: Path) -> None:
    folder = tree_folder(tmp_path, COMPLETE)
    without_new_fields(folder)
    (folder / "config.pbtxt").write_text(config(COMPLETE).replace("input__0", "features"))
    assert seen(tmp_path) == []
    assert "call it 'input__0'" in only_seen(tmp_path, "fil-declaration", TARGET).cure


def test_parameters_that_contradict_the_trees(tmp_path: Path) -> None:
    tree_folder(tmp_path, {**COMPLETE, "output_class": "false"}, kind="classes")
    assert "contradicts the model, which has 3 classes" in only_seen(tmp_path, "config-rules").seen


def test_a_checkpoint_of_another_treelite(tmp_path: Path) -> None:
    folder = tree_folder(tmp_path, COMPLETE)
    cure(tmp_path, TARGET)
    path = folder / "1" / "checkpoint.tl"
    path.write_bytes(struct.pack("<iii", 3, 9, 1) + path.read_bytes()[12:])
    assert "written by treelite 3.9.1; Bident reads treelite 4" in only_seen(tmp_path, "treelite-version").seen
    assert seen(tmp_path, "treelite-version", target=TARGET) == []
    assert "reads treelite 3" not in str(seen(tmp_path, "treelite-version", target="triton:24.01"))


def test_one_model_of_a_repository(tmp_path: Path) -> None:
    folder = tree_folder(tmp_path, COMPLETE)
    write(tmp_path, "other", "no configuration at all {")
    patient, checks = patient_of(folder, TARGET), selected(only_path=True)
    treated, left = treat(patient, checks, examine(patient, checks))
    assert [done.finding.check for done in treated] == ["xgboost-schema"]
    assert left == []
