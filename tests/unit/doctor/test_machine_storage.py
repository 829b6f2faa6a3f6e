"""Disks that are full or forgetful, memory, files, cores."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bident.doctor.check import Patient, Weight
from bident.doctor.machine.limits import Memory, OpenFiles, ProcessorShare
from bident.doctor.machine.mounts import Mount, mount_of, mounts_here
from bident.doctor.machine.shared_memory import Room, SharedMemorySize
from bident.doctor.machine.storage import DiskSpace, HuggingFaceOffline, ModelCache, TemporaryFolder
from bident.doctor.machine.surroundings import Surroundings
from bident.text.runner.cgroup import Cgroup
from tests.unit.doctor.found import findings, only

GIBIBYTE = 1 << 30
PYTHON_MODEL = """
backend: "python"
max_batch_size: 8
input [ { name: "IMAGE", data_type: TYPE_FP32, dims: [ 3, 640, 640 ] } ]
output [ { name: "BOXES", data_type: TYPE_FP32, dims: [ -1, 4 ] } ]
instance_group [ { count: 2, kind: KIND_CPU } ]
"""


def _here(tmp_path: Path, **environ: str) -> Surroundings:
    """Everything that models keep is below ``tmp_path``."""
    kept = {"BIDENT_MODEL_CACHE_DIRECTORY": str(tmp_path / "cache"), "BIDENT_TEXT_MODELS": str(tmp_path / "text")}
    return Surroundings({**kept, **environ}, tmp_path)


def test_a_disk_that_is_nearly_full(tmp_path: Path) -> None:
    found = only(DiskSpace(_here(tmp_path), lambda _: GIBIBYTE))
    assert (found.weight, "1.00 GiB" in found.seen) == (Weight.RISK, True)
    assert only(DiskSpace(_here(tmp_path), lambda _: 1000)).weight is Weight.BROKEN
    assert findings(DiskSpace(_here(tmp_path), lambda _: 100 * GIBIBYTE)) == []


def test_a_cache_in_memory(tmp_path: Path) -> None:
    """A real one: /dev/shm is a tmpfs on every Linux."""
    here = _here(tmp_path, BIDENT_MODEL_CACHE_DIRECTORY="/dev/shm/models")
    found = [each for each in findings(ModelCache(here)) if each.where == "/dev/shm/models"]
    assert ["tmpfs" in each.cause for each in found] == [True]


@pytest.mark.parametrize(
    ("kind", "environ", "cause"),
    [
        ("overlay", {}, "goes with the container"),
        ("ext4", {"COLAB_RELEASE_TAG": "x"}, "only /content/drive stays"),
        ("ext4", {}, ""),
    ],
)
def test_folders_that_do_not_stay(tmp_path: Path, kind: str, environ: dict[str, str], cause: str) -> None:
    mounts = [Mount(Path("/"), kind, frozenset())]
    found = findings(ModelCache(_here(tmp_path, **environ), lambda: mounts))
    assert [cause in each.cause for each in found] == ([True, True] if cause else [])


def test_the_innermost_and_latest_mount_counts() -> None:
    mounts = [Mount(Path(point), kind, frozenset()) for point, kind in (("/", "ext4"), ("/a", "tmpfs"), ("/a", "xfs"))]
    assert [mount.kind for path in ("/a/b", "/ab") if (mount := mount_of(Path(path), mounts))] == ["xfs", "ext4"]
    assert mount_of(Path("/dev/shm/x"), mounts_here()) is not None


def test_temporary_folders(tmp_path: Path) -> None:
    absent = only(TemporaryFolder(Surroundings({"TMPDIR": str(tmp_path / "absent")})))
    assert (absent.weight, "no such folder" in absent.seen) == (Weight.BROKEN, True)
    here = Surroundings({"TMPDIR": str(tmp_path)})
    mounts = [Mount(Path("/"), "ext4", frozenset({"rw", "noexec"}))]
    assert "noexec" in only(TemporaryFolder(here, lambda: mounts)).seen
    assert findings(TemporaryFolder(here, list)) == []
    assert list(tmp_path.iterdir()) == []


def test_hugging_face_offline_with_an_empty_cache(tmp_path: Path) -> None:
    environ = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    assert "no model is in" in only(HuggingFaceOffline(Surroundings(environ, tmp_path))).seen
    (tmp_path / "hub" / "models--a--b").mkdir(parents=True)
    assert findings(HuggingFaceOffline(Surroundings(environ, tmp_path))) == []
    assert findings(HuggingFaceOffline(Surroundings({"HF_HOME": "/absent"}, tmp_path))) == []


def test_shared_memory_for_a_real_triton(tmp_path: Path) -> None:
    (tmp_path / "detect" / "1").mkdir(parents=True)
    (tmp_path / "detect" / "config.pbtxt").write_text(PYTHON_MODEL)
    (tmp_path / "broken" / "1").mkdir(parents=True)
    (tmp_path / "broken" / "config.pbtxt").write_text("{")
    dockers = SharedMemorySize(_here(tmp_path), lambda: Room(64 << 20, 64 << 20))
    found = only(dockers, Patient(tmp_path, target="triton:25.05"))
    assert found.weight is Weight.BROKEN
    assert "'detect' need 78 MiB" in found.seen, found.seen  # 2 * (1 MiB + 8 * 4 * (3 * 640 * 640 + 4))
    assert "shm_size: 256m" in found.cure
    assert only(dockers, Patient(target="triton:25.05")).weight is Weight.RISK
    assert findings(dockers, Patient(tmp_path)) == []
    (tmp_path / "broken" / "config.pbtxt").write_text(PYTHON_MODEL.replace("TYPE_FP32", "99"))
    assert "'broken' and 'detect' need 98 MiB" in only(dockers, Patient(tmp_path, target="triton:25.05")).seen
    plenty = SharedMemorySize(_here(tmp_path), lambda: Room(GIBIBYTE, GIBIBYTE))
    assert findings(plenty, Patient(tmp_path, target="triton:25.05")) == []


def test_models_larger_than_memory(tmp_path: Path) -> None:
    """Files of that size, but for what is in them."""
    for version, size in (("1", 1 << 42), ("2", 1 << 40)):
        (tmp_path / "large" / version).mkdir(parents=True)
        with (tmp_path / "large" / version / "model.onnx").open("wb") as file:
            file.truncate(size)
    found = only(Memory(), Patient(tmp_path))
    assert "1024.00 GiB of files" in found.seen
    (tmp_path / "large" / "2" / "model.onnx").write_bytes(b"small")
    assert findings(Memory(), Patient(tmp_path)) == []
    assert findings(Memory(), Patient()) == []


def _group(tmp_path: Path, **files: str) -> Cgroup:
    for name, text in files.items():
        (tmp_path / name.replace("_", ".")).write_text(text)
    return Cgroup(tmp_path, tmp_path / "membership")


def test_memory_that_a_container_may_not_use(tmp_path: Path) -> None:
    group = _group(tmp_path, memory_max="1000", memory_current="0")
    (tmp_path / "models" / "a" / "1").mkdir(parents=True)
    (tmp_path / "models" / "a" / "1" / "model.onnx").write_bytes(bytes(2000))
    assert "control group" in only(Memory(None, lambda: 1000, group), Patient(tmp_path / "models")).cause


def test_more_threads_than_cores(tmp_path: Path) -> None:
    group = _group(tmp_path, cpu_max="100000 100000")
    found = only(ProcessorShare(Surroundings({"OMP_NUM_THREADS": "8"}, tmp_path), group))
    assert (found.cure.partition(",")[0], "gives it 1 of" in found.cause) == ("OMP_NUM_THREADS=1", True)
    assert only(ProcessorShare(Surroundings({"BIDENT_WORKERS": "4"}, tmp_path), group)).where == "BIDENT_WORKERS=4"
    assert findings(ProcessorShare(Surroundings({"OMP_NUM_THREADS": "1"}, tmp_path), group)) == []


def test_a_low_limit_of_open_files(tmp_path: Path) -> None:
    """The limit of a real process: this one's may not be lowered, it could not be raised again."""
    code = (
        "from bident.doctor.machine.limits import OpenFiles; from bident.doctor.check import Patient;"
        "print([finding.seen for finding in OpenFiles().examine(Patient())])"
    )
    shell = f"ulimit -n 1024 && exec {sys.executable} -c '{code}'"
    said = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert "a process may open 1024 files" in said
    assert "--http-max-connections is 16384" in said
    assert findings(OpenFiles(Surroundings({"BIDENT_HTTP_MAX_CONNECTIONS": "100"}, tmp_path), lambda: 1024)) == []
    assert findings(OpenFiles(Surroundings(os.environ, tmp_path), lambda: None)) == []
