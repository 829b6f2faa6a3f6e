"""The Python that a stub finds: this environment's packages, and a numpy that it can read in front of them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from bident.errors import Code, ServeError
from bident.ship.triton import interpreter
from bident.ship.triton.home import PYTHON, Home, Stub
from bident.ship.triton.interpreter import make_environment

OLD, NEW = (Stub(Path("stub"), PYTHON, takes_numpy_2) for takes_numpy_2 in (False, True))
HOME = Home(Path("/opt/tritonserver"))


def write_numpy_1(folder: Path) -> None:
    (folder / "numpy" / "core").mkdir(parents=True)
    (folder / "numpy" / "__init__.py").write_text('__version__ = "1.26.4"\n')
    (folder / "numpy" / "core" / f"_multiarray_umath.cpython-{PYTHON.replace('.', '')}-x.so").write_text("")
    (folder / "numpy-1.26.4.dist-info").mkdir()
    (folder / "numpy-1.26.4.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 1.26.4\n")


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """What was fetched from the package index, in whose place a numpy 1 is written."""
    asked: list[Sequence[str]] = []

    def unpack(requirements: Sequence[str], target: Path) -> None:
        asked.append(requirements)
        write_numpy_1(target)

    monkeypatch.setattr(interpreter, "unpack_wheels", unpack)
    return asked


def seen_by(python: Path) -> list[str]:
    """What an interpreter there imports: the version of numpy, and where bident lies."""
    code = "import numpy, bident; print(numpy.__version__); print(bident.__version__)"
    command = [python / "python3", "-I", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.split()


def test_an_old_stub_gets_an_old_numpy_and_the_packages_of_here(tmp_path: Path, fetched: list[Sequence[str]]) -> None:
    python = make_environment(HOME, OLD, tmp_path / "python", tmp_path / "cache")
    assert seen_by(python)[0] == "1.26.4"
    assert fetched == [["numpy<2"]]
    make_environment(HOME, OLD, tmp_path / "again", tmp_path / "cache")
    assert len(fetched) == 1, "it is kept"


def test_the_numpy_beside_the_server_is_taken(tmp_path: Path, fetched: list[Sequence[str]]) -> None:
    write_numpy_1(tmp_path / "site-packages")
    home = Home(tmp_path / "site-packages" / "pytriton" / "tritonserver")
    python = make_environment(home, OLD, tmp_path / "python", tmp_path / "cache")
    assert seen_by(python)[0] == "1.26.4"
    assert not fetched


def test_one_for_another_python_is_not(tmp_path: Path, fetched: list[Sequence[str]]) -> None:
    write_numpy_1(tmp_path / "site-packages")
    next((tmp_path / "site-packages" / "numpy" / "core").iterdir()).rename(tmp_path / "elsewhere")
    home = Home(tmp_path / "site-packages" / "pytriton" / "tritonserver")
    make_environment(home, OLD, tmp_path / "python", tmp_path / "cache")
    assert len(fetched) == 1


def test_a_new_stub_gets_the_packages_of_here_alone(tmp_path: Path, fetched: list[Sequence[str]]) -> None:
    import numpy

    python = make_environment(HOME, NEW, tmp_path / "python", tmp_path / "cache")
    assert seen_by(python)[0] == numpy.__version__
    assert not fetched


def test_nothing_half_fetched_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unpack(requirements: Sequence[str], target: Path) -> None:
        write_numpy_1(target)
        raise ServeError(Code.UNAVAILABLE, "cannot fetch numpy<2 from the package index: no network")

    monkeypatch.setattr(interpreter, "unpack_wheels", unpack)
    with pytest.raises(ServeError, match="no network"):
        make_environment(HOME, OLD, tmp_path / "python", tmp_path / "cache")
    assert not list((tmp_path / "cache" / "triton").iterdir())


def test_a_python_that_never_had_numpy_1_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "_LAST_WITH_NUMPY_1", (3, 9))
    with pytest.raises(ServeError, match=r"built for numpy 1, which there is for Python 3\.9 at most"):
        make_environment(HOME, OLD, tmp_path / "python", tmp_path / "cache")
