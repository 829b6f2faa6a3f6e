"""Whatever lies in a repository, the doctor ends, and says no check of its own has failed."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from bident.doctor.check import Patient
from bident.doctor.examination import examine, selected, treat
from tests.unit.backends.fil.fil_models import booster
from tests.unit.doctor.ward import MODEL_PY, PYTHON, X_TO_Y, identity_onnx, put, write

TREES = 'backend: "fil" max_batch_size: 4 parameters { key: "model_type" value { string_value: "xgboost_json" } }'
SEEDS = {
    "1/model.onnx": (X_TO_Y, lambda: identity_onnx().SerializeToString()),
    "1/model.py": (PYTHON, MODEL_PY.encode),
    "1/xgboost.json": (TREES, lambda: bytes(booster().save_raw("json"))),
    "1/xgboost.ubj": (TREES.replace("json", "ubj"), lambda: bytes(booster().save_raw("ubj"))),
}


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Cut, with bytes changed, repeated or put in."""
    data = bytearray(content)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(5):
            case 0:
                del data[at:]
            case 1:
                data[at : at + 1] = chance.randbytes(1)
            case 2:
                data[at:at] = data[: chance.randrange(64)]
            case 3:
                del data[at : at + chance.randrange(16)]
            case _:
                data[at:at] = chance.choice([b"{", b"}", b'"', b"[", b"\0", b"\xff", b"-1", b"9" * 30, b"NaN"])
    return bytes(data)


@pytest.mark.parametrize("place", SEEDS)
@pytest.mark.parametrize("of_config", [False, True])
def test_damaged_files(tmp_path: Path, place: str, *, of_config: bool) -> None:
    config, make = SEEDS[place]
    content = make()
    chance = random.Random(f"{place} {of_config}")
    for round_ in range(12):
        text = damaged(config.encode(), chance) if of_config else config.encode()
        folder = write(tmp_path, f"m{round_}", text)
        put(folder, place, content if of_config else damaged(content, chance))
    for target in ("", "triton:25.05"):
        patient, checks = Patient(repository=tmp_path, target=target), selected(only_path=True)
        found = examine(patient, checks)
        assert not [finding for finding in found if "could not be finished" in finding.seen]
        json.dumps([finding.seen for finding in found]).encode()
    _, left = treat(patient, checks, found)
    assert not [finding for finding in left if "could not be finished" in finding.seen]


def test_strange_things_in_a_repository(tmp_path: Path) -> None:
    folder = write(tmp_path, "m", X_TO_Y)
    os.mkfifo(tmp_path / "pipe")
    (folder / "1").mkdir()
    os.mkfifo(folder / "1" / "model.onnx")
    (folder / "loop").symlink_to(folder)
    (folder / "2").symlink_to("2")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    (write(tmp_path, "c", None) / "config.pbtxt").mkdir()
    (tmp_path / os.fsdecode(b"\xff\xfe")).mkdir()
    put(write(tmp_path, "é\n[red]x", None), "1/model.onnx", b"x")
    write(tmp_path, "nested", "input { name: 'a' " * 200)
    found = examine(Patient(repository=tmp_path), selected(only_path=True))
    assert not [finding for finding in found if "could not be finished" in finding.seen]
    assert {"damaged-file", "config-syntax"} <= {finding.check for finding in found}
