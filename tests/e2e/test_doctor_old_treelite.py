"""The treelite of an older release of Triton itself reads what the doctor has written for that release."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bident.backends.fil.treelite_library import GtilSettings
from bident.doctor.check import Patient
from bident.doctor.examination import examine, selected, treat
from tests.unit.backends.fil.fil_models import booster, rows
from tests.unit.doctor.ward import put, write

TREELITE = "treelite==4.4.1"
"""Of the months before Triton 25.05: RAPIDS 25.02 pins it."""
READ = """
import sys
import numpy as np
from bident.backends.fil.treelite_library import GtilSettings, TreeliteModel

kind, path, rows, answers = sys.argv[1:]
data = open(path, "rb").read()
model = TreeliteModel.from_checkpoint(data) if kind == "checkpoint" else TreeliteModel.from_xgboost_json(data)
np.save(answers, model.predict(np.load(rows), GtilSettings(1)))
"""


@pytest.fixture(scope="session")
def old_treelite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with that treelite alone."""
    folder = tmp_path_factory.mktemp("treelite")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
    subprocess.run([*command, "--only-binary", ":all:", "--target", str(folder), TREELITE], check=True, timeout=100)
    return folder


def read(old_treelite: Path, kind: str, path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Let the older treelite read ``path`` and answer the rows in ``folder``."""
    return subprocess.run(
        [sys.executable, "-c", READ, kind, str(path), str(folder / "rows.npy"), str(folder / "answers.npy")],
        env={**os.environ, "PYTHONPATH": str(old_treelite)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("kind", ["binary", "classes", "real"])
def test_a_checkpoint_for_25_05(tmp_path: Path, old_treelite: Path, kind: str) -> None:
    objective = {"binary": "binary:logistic", "classes": "multi:softprob", "real": "reg:squarederror"}[kind]
    model = booster(objective, kind)
    folder = write(tmp_path, "trees", 'backend: "fil"')
    original = put(folder, "1/xgboost.json", bytes(model.save_raw("json")))
    np.save(tmp_path / "rows.npy", rows(128))
    refused = read(old_treelite, "json", original, tmp_path)
    assert "could not be parsed as XGBoost model" in refused.stderr

    patient, checks = Patient(repository=tmp_path, model=folder, target="triton:25.05"), selected(only_path=True)
    _, left = treat(patient, checks, examine(patient, checks))
    assert left == []

    done = read(old_treelite, "checkpoint", folder / "1" / "checkpoint.tl", tmp_path)
    assert done.returncode == 0, done.stderr
    ours = _answers(folder / "1" / "checkpoint.tl")
    np.testing.assert_allclose(np.load(tmp_path / "answers.npy"), ours, rtol=1e-6)


def _answers(path: Path) -> np.ndarray:
    from bident.backends.fil.treelite_library import TreeliteModel

    return TreeliteModel.from_checkpoint(path.read_bytes()).predict(rows(128), GtilSettings(1))
