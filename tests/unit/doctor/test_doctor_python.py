"""Pitfalls of Python models."""

from __future__ import annotations

import io
import random
import sys
import tarfile
from pathlib import Path

import pytest

from bident.doctor.check import Weight
from tests.unit.doctor.ward import MODEL_PY, PYTHON, only_seen, put, python_folder, seen


def with_environment(path: Path | str) -> str:
    return f'{PYTHON}parameters {{ key: "EXECUTION_ENV_PATH" value: {{ string_value: "{path}" }} }}\n'


def environment(folder: Path, version: str, *packages: str) -> Path:
    """What a virtual environment looks like from outside; its python cannot be run."""
    put(folder, "bin/python", "not a program")
    for package in packages:
        put(folder, f"lib/python{version}/site-packages/{package}/__init__.py", "")
    return folder


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("class TritonPythonModel\n    pass\n", "line 1"),
        (b"\xff\xfe\x00", "null bytes"),
        ("x = 1\n", "no class TritonPythonModel"),
        ("class TritonPythonmodel:\n    def execute(self, requests): ...\n", "there is TritonPythonmodel"),
        ("class TritonPythonModel:\n    def run(self, requests): ...\n", "no method execute"),
        ("(" * 5000, "line 1"),
    ],
)
def test_source_that_the_backend_could_not_run(tmp_path: Path, source: str | bytes, word: str) -> None:
    python_folder(tmp_path, source)
    finding = only_seen(tmp_path, "python-source")
    assert word in finding.seen


@pytest.mark.parametrize(
    "source",
    [
        MODEL_PY,
        "from base import TritonPythonModel\n",
        "from base import Base\nclass TritonPythonModel(Base):\n    pass\n",
        "class M:\n    def execute(self, requests): ...\nTritonPythonModel = M\n",
        "class TritonPythonModel:\n    async def execute(self, requests): ...\n",
    ],
)
def test_source_in_order(tmp_path: Path, source: str) -> None:
    put(python_folder(tmp_path, source), "1/base.py", "class Base: ...")
    assert seen(tmp_path) == []


def test_packages_that_are_missing(tmp_path: Path) -> None:
    source = f"""
import absent_package.part
import cv9, numpy, json
from . import neighbour
from tokeniser import Tokeniser
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import absent_types
try:
    import absent_option
except ImportError:
    absent_option = None
{MODEL_PY}
    def initialize(self, args):
        import absent_inside
"""
    folder = python_folder(tmp_path, source)
    put(folder, "1/tokeniser.py", "")
    finding = only_seen(tmp_path, "python-packages")
    assert "'absent_package' (line 2), 'cv9' (line 3), 'absent_inside'" in finding.seen
    assert "absent_option" not in finding.seen
    assert finding.cure == f"{sys.executable} -m pip install absent_package cv9 absent_inside"


def test_packages_of_a_models_own_environment(tmp_path: Path) -> None:
    own = environment(tmp_path / "env", "3.12", "numpy", "sklearn")
    repository = tmp_path / "repository"
    python_folder(repository, f"import numpy, sklearn, PIL\n{MODEL_PY}", with_environment(own))
    finding = only_seen(repository, "python-packages")
    assert finding.seen.startswith("'PIL' (line 1) cannot be imported")
    assert finding.cure == f"{own}/bin/python -m pip install pillow"
    assert seen(repository, "python-environment", target="triton:25.05") == []
    finding = only_seen(repository, "python-environment", "triton:24.09")
    assert "Python 3.12, and Triton 24.09 is built for 3.10" in finding.seen


def test_an_archive_as_environment(tmp_path: Path) -> None:
    archive = tmp_path / "env.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name in ("bin/python", "lib/python3.10/site-packages/numpy/__init__.py"):
            tar.addfile(tarfile.TarInfo(f"./{name}"), io.BytesIO())
    repository = tmp_path / "repository"
    python_folder(repository, f"import numpy, torch\n{MODEL_PY}", with_environment(archive))
    assert "'torch'" in only_seen(repository, "python-packages").seen
    assert "Python 3.10" in only_seen(repository, "python-environment", "triton:25.05").seen
    archive.write_bytes(archive.read_bytes()[:40])
    assert "is no archive" in only_seen(repository, "python-environment").seen


def test_an_archive_that_is_damaged_in_the_middle(tmp_path: Path) -> None:
    archive = tmp_path / "env.tar.xz"
    with tarfile.open(archive, "w:xz") as tar:
        content = random.Random(0).randbytes(100_000)
        member = tarfile.TarInfo("lib/python3.10/site-packages/numpy/__init__.py")
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
        tar.addfile(member, io.BytesIO(content[::-1]))
    damaged = bytearray(archive.read_bytes())
    damaged[20_000:21_000] = bytes(1000)
    archive.write_bytes(damaged)
    repository = tmp_path / "repository"
    python_folder(repository, config=with_environment(archive))
    assert "is no archive that can be read" in only_seen(repository, "python-environment").seen


@pytest.mark.parametrize(("name", "word"), [("/absent/env", "does not exist"), ("empty", "holds no Python")])
def test_environments_that_are_none(tmp_path: Path, name: str, word: str) -> None:
    (tmp_path / "empty").mkdir()
    repository = tmp_path / "repository"
    python_folder(repository, config=with_environment(name if name.startswith("/") else tmp_path / name))
    assert word in only_seen(repository, "python-environment").seen


def test_an_environment_by_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    environment(tmp_path / "env", "3.12")
    repository = tmp_path / "repository"
    python_folder(repository, config=with_environment("env"))
    finding = only_seen(repository, "python-environment")
    assert finding.weight is Weight.RISK
    assert str(tmp_path / "env") in finding.cure


def test_names_of_tensors_in_the_code(tmp_path: Path) -> None:
    python_folder(tmp_path, MODEL_PY.replace('"TEXT"', '"text"').replace('"LABEL"', '"LABELS"'))
    reads, makes = sorted(seen(tmp_path, "python-tensor-names"), key=lambda finding: finding.seen, reverse=True)
    assert "output 'LABELS' is not in config.pbtxt; did you mean 'LABEL'?" in reads.seen
    assert "input 'text' is not in config.pbtxt; did you mean 'TEXT'?" in makes.seen


def test_files_opened_from_wherever_the_server_runs(tmp_path: Path) -> None:
    folder = python_folder(tmp_path, f"words = open('vocabulary.txt')\nother = open('/dev/null')\n{MODEL_PY}")
    assert seen(tmp_path) == []  # there is no such file with the model: it means another
    put(folder, "1/vocabulary.txt", "a")
    finding = only_seen(tmp_path, "python-relative-files")
    assert "line 1 opens 'vocabulary.txt'" in finding.seen
