"""Compiled libraries that do not load: real ones, in which the name of what they need was changed."""

from __future__ import annotations

from pathlib import Path

import lightgbm
import pytest

from bident.doctor.machine.cpu import Emulation, Interpreter, ProcessorFeatures
from bident.doctor.machine.native_libraries import NativeLibrary, OpenMp, SystemLibrary, loader_errors
from bident.doctor.machine.surroundings import Surroundings
from tests.unit.doctor.found import findings, only

LIBRARY = Path(lightgbm.__file__).parent / "lib" / "lib_lightgbm.so"
CHECKS = (OpenMp, SystemLibrary, NativeLibrary)
MACOS = Surroundings(platform="darwin")


def _changed(path: Path, old: bytes, new: bytes) -> Path:
    content = LIBRARY.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))
    return path


@pytest.mark.parametrize(
    ("old", "new", "named", "seen"),
    [
        (b"libgomp.so.1", b"libgomp.so.7", OpenMp, "it needs libgomp"),
        (b"GLIBC_2.14", b"GLIBC_9.14", SystemLibrary, "it needs GLIBC_9.14"),
        (b"libm.so.6", b"libq.so.6", NativeLibrary, "libq.so.6"),
    ],
)
def test_each_cause_has_its_check(tmp_path: Path, old: bytes, new: bytes, named: type[OpenMp], seen: str) -> None:
    path = _changed(tmp_path / "library.so", old, new)
    said = loader_errors((path, LIBRARY))
    assert set(said) == {str(path)}
    for check in CHECKS:
        found = findings(check(errors=lambda: said))
        assert [seen in each.seen for each in found] == ([True] if check is named else [])


def test_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "library.so"
    path.write_bytes(LIBRARY.read_bytes()[:100])
    assert only(NativeLibrary(errors=lambda: loader_errors((path,)))).where == str(path)


def test_macos_says_it_otherwise() -> None:
    said = {"/x/libxgboost.dylib": "dlopen(/x/libxgboost.dylib, 0x0006): Library not loaded: @rpath/libomp.dylib"}
    assert only(OpenMp(MACOS, lambda: said)).cure == "brew install libomp"


def test_the_libraries_of_this_environment_load() -> None:
    assert [findings(check()) for check in CHECKS] == [[], [], []]


def test_an_old_processor(tmp_path: Path) -> None:
    description = tmp_path / "cpuinfo"
    description.write_text("processor : 0\nflags : fpu sse2 avx\n")
    assert "avx2" in only(ProcessorFeatures(description, lambda: True)).seen
    assert findings(ProcessorFeatures(description, lambda: False)) == []
    assert findings(ProcessorFeatures(tmp_path / "absent", lambda: True)) == []


class _Translated(Interpreter):
    def is_translated(self, platform_name: str) -> bool:
        return platform_name == "darwin"


def test_rosetta_and_32_bits() -> None:
    assert "Rosetta" in only(Emulation(MACOS, _Translated("x86_64"))).seen
    assert "32 bits" in only(Emulation(interpreter=Interpreter("i686", 32))).seen
    assert findings(Emulation()) == []
