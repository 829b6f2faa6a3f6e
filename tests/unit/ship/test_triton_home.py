"""Where a real Triton is looked for, and what makes one unfit, told apart without one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from bident.errors import Code, ServeError
from bident.ship.triton import home as home_module
from bident.ship.triton import linking
from bident.ship.triton.home import PYTHON, STUB, Home, find_home

pytestmark = pytest.mark.usefixtures("linux")


@pytest.fixture
def linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_module.sys, "platform", "linux")
    monkeypatch.setattr(home_module, "find_spec", lambda _: None)


def installation(folder: Path) -> Path:
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "tritonserver"
    program.write_text("#!/bin/sh\necho --help\n")
    program.chmod(0o755)
    (folder / "backends" / "python").mkdir(parents=True)
    return folder


def test_the_folder_that_is_named_goes_first(tmp_path: Path) -> None:
    named, other = installation(tmp_path / "named"), installation(tmp_path / "other")
    environ = {"TRITON_HOME": str(named), "PATH": str(other / "bin")}
    assert find_home(environ).folder == named
    del environ["TRITON_HOME"]
    assert find_home(environ).folder == other


def test_an_environment_with_the_package_may_be_named(tmp_path: Path) -> None:
    inside = tmp_path / "lib" / "python3.11" / "site-packages" / "pytriton" / "tritonserver"
    installation(inside)
    found = find_home({"TRITON_HOME": str(tmp_path)})
    assert found.folder == inside
    assert found.site_packages() == inside.parents[1]


@pytest.mark.parametrize(("folder", "said"), [("missing", "does not exist"), (".", "has no bin/tritonserver")])
def test_a_wrong_folder_is_named(tmp_path: Path, folder: str, said: str) -> None:
    with pytest.raises(ServeError, match=said) as caught:
        find_home({"TRITON_HOME": str(tmp_path / folder), "PATH": ""})
    assert caught.value.code is Code.NOT_FOUND


def test_a_program_without_its_backends_is_no_installation(tmp_path: Path) -> None:
    shutil.rmtree(installation(tmp_path) / "backends")
    with pytest.raises(ServeError, match="is on the PATH, but there is no backend in"):
        find_home({"PATH": str(tmp_path / "bin")})


def test_nowhere_is_explained() -> None:
    with pytest.raises(
        ServeError, match="TRITON_HOME is not set, none is on the PATH, and the package nvidia-pytriton"
    ):
        find_home({"PATH": "/nowhere"})


def test_elsewhere_than_on_linux_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_module.sys, "platform", "darwin")
    with pytest.raises(ServeError, match="for Linux alone, and this is darwin"):
        find_home({"TRITON_HOME": "/x"})


def test_the_stub_of_this_python_is_found_beside_others(tmp_path: Path) -> None:
    folder = installation(tmp_path)
    (folder / "backends" / "python" / STUB).write_bytes(b"..libpython3.6.so.1.0..")
    for python, more in (("3.9", b""), (PYTHON, b"numpy._core")):
        place = folder / "python_backend_stubs" / python
        place.mkdir(parents=True)
        (place / STUB).write_bytes(f"libpython{python}.so.1.0 ".encode() + more)
    stub = Home(folder).stub()
    assert (stub.path.parent.name, stub.takes_numpy_2) == (PYTHON, True)
    (folder / "python_backend_stubs" / PYTHON / STUB).unlink()
    with pytest.raises(ServeError, match=r"there are stubs for 3\.6, 3\.9"):
        Home(folder).stub()


def program(folder: Path, text: str) -> Path:
    path = folder / "program"
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        (
            "p: error while loading shared libraries: libb64.so.0d: cannot open shared object file: No such file",
            "the library libb64.so.0d cannot be loaded .* apt-get install libb64-0d",
        ),
        (
            "p: error while loading shared libraries: libpython3.12.so.1.0: cannot open shared object file: No",
            "install libpython3.12",
        ),
        ("p: /lib/libc.so.6: version `GLIBC_2.99' not found (required by p)", "it needs GLIBC_2.99, and this system"),
    ],
)
def test_what_the_loader_misses_is_named(tmp_path: Path, printed: str, said: str) -> None:
    path = program(tmp_path, f'#!/bin/sh\necho "{printed}" | sed "s/xx/ /"\nexit 127\n'.replace("`", "\\`"))
    with pytest.raises(ServeError, match=said):
        linking.output_of(path, os.environ)


def test_what_cannot_be_executed_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ServeError, match="another kind of machine"):
        linking.output_of(program(tmp_path, "\x7fELF junk"), os.environ)
    with pytest.raises(ServeError, match="killed by SIGILL; this processor lacks"):
        linking.output_of(program(tmp_path, "#!/bin/sh\nkill -ILL $$\n"), os.environ)
    (tmp_path / "program").chmod(0o644)
    with pytest.raises(ServeError, match="it is not executable"):
        linking.output_of(tmp_path / "program", os.environ)
