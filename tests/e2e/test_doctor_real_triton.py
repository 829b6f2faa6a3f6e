"""A real Triton as the judge: what the doctor calls broken it refuses, and what the doctor has cured it loads."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.triton import RealTriton
from bident.client import Client
from bident.doctor.check import Patient, Weight
from bident.doctor.examination import examine, selected, treat
from real_triton import make_triton
from tests.unit.doctor.ward import MODEL_PY, PYTHON, put, python_folder, write

TARGET = "triton:24.10"
ENSEMBLE = """
platform: "ensemble"
max_batch_size: 4
input [ { name: "in" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "out" data_type: TYPE_STRING dims: [ 1 ] } ]
ensemble_scheduling { step [ {
  model_name: "echoo" model_version: -1
  input_map { key: "TEXT" value: "in" } output_map { key: "LABEL" value: "out" }
} ] }
"""


def write_broken(repository: Path) -> set[str]:
    """Models that a server with the Python backend alone could load, but for one mistake in each; their names."""
    python_folder(repository, config=b"\xef\xbb\xbf" + PYTHON.encode(), name="marked")
    python_folder(repository, config=f"{PYTHON}instance_group [ {{ kind: KIND_GPU }} ]", name="on_gpu")
    python_folder(repository, config=f'name: "original"\n{PYTHON}', name="copied")
    python_folder(repository, config=PYTHON.replace('"python"', '"pyton"'), name="misspelt")
    for name, place in (
        ("letter", "v1/model.py"),
        ("zero", "01/model.py"),
        ("beside", "model.py"),
        ("deep", "deep/1/model.py"),
    ):
        put(write(repository, name, PYTHON), place, MODEL_PY)
    (write(repository, "composed", ENSEMBLE) / "1").mkdir()
    return {folder.name for folder in repository.iterdir()}


def ready(repository: Path, log: Path) -> set[str]:
    """The models that a real Triton serves: it opens its port when it has tried to load them all."""
    with RealTriton(repository, log, "--exit-on-error=false", "--strict-readiness=false") as server:
        index = Client(server.url(""), timeout=10).index()
    return {entry["name"] for entry in index if entry.get("state") == "READY"}


def test_what_is_broken_and_what_is_cured(tmp_path: Path) -> None:
    make_triton()
    repository = tmp_path / "repository"
    names = write_broken(repository)
    python_folder(repository, name="echo")
    assert ready(repository, tmp_path / "before.log") == {"echo"}

    patient, checks = Patient(repository=repository, target=TARGET), selected(only_path=True)
    found = examine(patient, checks)
    places = " ".join(finding.where for finding in found if finding.weight in (Weight.BROKEN, Weight.RISK))
    assert not [name for name in names if f"/{name}" not in places]
    treated, left = treat(patient, checks, found)
    assert not [done for done in treated if done.problem]
    assert left == []

    assert ready(repository, tmp_path / "after.log") == {*names, "echo"}
