"""Packages in each other's way, in folders that pip could have left."""

from __future__ import annotations

import shutil
from pathlib import Path

from bident.doctor.check import Weight
from bident.doctor.machine.numpy_abi import NumpyAbi
from bident.doctor.machine.packages import DuplicatePackages, PackageConflicts, PackageVariants
from tests.unit.doctor.found import findings, install, only


def test_two_versions_of_one_package(tmp_path: Path) -> None:
    install(tmp_path, "numpy", "1.26.4")
    install(tmp_path, "numpy", "2.2.6")
    found = only(DuplicatePackages((tmp_path,)))
    assert "1.26.4 and as 2.2.6" in found.seen
    assert "--force-reinstall --no-deps numpy" in found.cure


def test_what_pip_moved_away(tmp_path: Path) -> None:
    install(tmp_path, "numpy", "2.2.6")
    (tmp_path / "~umpy").mkdir()
    found = only(DuplicatePackages((tmp_path,)))
    assert found.where.endswith("~umpy")


def test_variants_over_each_other(tmp_path: Path) -> None:
    for name in ("onnxruntime", "onnxruntime-gpu", "xgboost", "opencv-python"):
        install(tmp_path, name, "1.20.0")
    found = only(PackageVariants((tmp_path,)))
    assert found.weight is Weight.BROKEN
    assert "onnxruntime and onnxruntime-gpu" in found.seen
    install(tmp_path, "xgboost_cpu", "3.0.0")
    assert [each.where.rpartition("/")[2] for each in findings(PackageVariants((tmp_path,)))] == [
        "onnxruntime",
        "xgboost",
    ]


def test_a_version_that_another_package_cannot_use(tmp_path: Path) -> None:
    install(tmp_path, "numpy", "2.2.6")
    install(tmp_path, "torch", "2.2.0", "numpy<2", 'absent; extra == "more"', "not a requirement (")
    found = only(PackageConflicts((tmp_path,)))
    assert found.where == "torch"
    assert 'pip install "numpy<2"' in found.cure


def test_folders_without_conflicts(tmp_path: Path) -> None:
    install(tmp_path, "numpy", "2.2.6")
    install(tmp_path, "torch", "2.6.0", "numpy", "absent>=3")
    (tmp_path / "broken-1.0.dist-info").mkdir()
    for check in (DuplicatePackages, PackageConflicts, PackageVariants, NumpyAbi):
        assert findings(check((tmp_path,))) == []


def test_a_module_compiled_for_numpy_1(tmp_path: Path) -> None:
    install(tmp_path, "numpy", "2.2.6")
    module = tmp_path / "old" / "_core.cpython-311-x86_64-linux-gnu.so"
    module.parent.mkdir()
    module.write_bytes(b"\x7fELF ... numpy.core._multiarray_umath\x00 ...")
    (module.parent / "empty.so").touch()
    found = only(NumpyAbi((tmp_path,)))
    assert (found.where, module.name in found.seen) == ("old", True)


def test_a_module_compiled_for_numpy_2(tmp_path: Path) -> None:
    """A real one: its header looks for the old name as well."""
    import ml_dtypes

    install(tmp_path, "numpy", "2.2.6")
    binary = next(Path(ml_dtypes.__file__).parent.glob("*.so"))
    assert b"numpy.core._multiarray_umath" in binary.read_bytes()
    shutil.copy(binary, tmp_path)
    assert findings(NumpyAbi((tmp_path,))) == []


def test_numpy_1_runs_what_was_made_for_it(tmp_path: Path) -> None:
    install(tmp_path, "numpy", "1.26.4")
    (tmp_path / "old.so").write_bytes(b"numpy.core._multiarray_umath")
    assert findings(NumpyAbi((tmp_path,))) == []


def test_this_environment_is_well() -> None:
    for check in (DuplicatePackages(), PackageVariants(), NumpyAbi()):
        assert findings(check) == []
