"""The wrong interpreter, and what PYTHONPATH and LD_LIBRARY_PATH put before the right packages."""

from __future__ import annotations

import os
import shutil
import sys
import venv
from pathlib import Path

import pytest

from bident.doctor.machine.interpreter import LibraryPath, PythonPath, SharedInterpreter, WrongInterpreter
from bident.doctor.machine.surroundings import Surroundings
from tests.unit.doctor.found import findings, only


def test_the_command_of_another_environment_is_first(tmp_path: Path) -> None:
    venv.create(tmp_path / "other", with_pip=False)
    command = tmp_path / "other" / "bin" / "bident"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    path = os.pathsep.join([str(command.parent), os.environ["PATH"]])
    found = only(WrongInterpreter(Surroundings({"PATH": path})))
    assert found.where == str(command)
    assert str(Path(sys.prefix) / "bin" / "activate") in found.cure


def test_another_environment_is_active(tmp_path: Path) -> None:
    found = only(WrongInterpreter(Surroundings({"PATH": "", "VIRTUAL_ENV": str(tmp_path)})))
    assert found.where == f"VIRTUAL_ENV={tmp_path}"
    assert findings(WrongInterpreter(Surroundings({"PATH": "", "VIRTUAL_ENV": sys.prefix}))) == []


def test_the_systems_python(tmp_path: Path) -> None:
    assert "environment of their own" in only(SharedInterpreter(Surroundings(prefix=tmp_path), base=tmp_path)).seen
    (tmp_path / "conda-meta").mkdir()
    assert findings(SharedInterpreter(Surroundings(prefix=tmp_path), base=tmp_path)) == []
    assert findings(SharedInterpreter()) == []


@pytest.mark.parametrize(
    ("make", "seen"),
    [("numpy/", "numpy"), ("triton_python_backend_utils.py", "triton_python_backend_utils.py")],
)
def test_modules_that_hide_the_installed_ones(tmp_path: Path, make: str, seen: str) -> None:
    path = tmp_path / make
    path.mkdir() if make.endswith("/") else path.touch()
    assert seen in only(PythonPath(Surroundings({"PYTHONPATH": str(tmp_path)}))).seen


def test_other_pythons_and_relative_folders() -> None:
    value = f"lib{os.pathsep}/opt/python3.6/site-packages{os.pathsep}/opt/own"
    first, second = findings(PythonPath(Surroundings({"PYTHONPATH": value})))
    assert "relative" in first.seen
    assert "python3.6" in second.seen
    assert "PYTHONHOME" in only(PythonPath(Surroundings({"PYTHONHOME": "/usr"}))).where


def test_libraries_in_place_of_the_systems(tmp_path: Path) -> None:
    shutil.copy(sys.executable, tmp_path / "libstdc++.so.6")
    value = f"{tmp_path}{os.pathsep}{os.pathsep}/absent"
    shadowing, working, absent = findings(LibraryPath(Surroundings({"LD_LIBRARY_PATH": value}, platform="linux")))
    assert "libstdc++.so.6" in shadowing.seen
    assert "started in" in working.seen
    assert "No such file" in absent.seen
    assert findings(LibraryPath(Surroundings({"LD_LIBRARY_PATH": value}, platform="darwin"))) == []
