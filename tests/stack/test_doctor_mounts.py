"""The doctor on small, forgetful and locked disks: real ones, mounted where only the test sees them (needs root)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PYTHON_MODEL = """
backend: "python"
max_batch_size: 8
input [ { name: "IMAGE", data_type: TYPE_FP32, dims: [ 3, 640, 640 ] } ]
output [ { name: "BOXES", data_type: TYPE_FP32, dims: [ 4 ] } ]
instance_group [ { count: 2, kind: KIND_CPU } ]
"""


def _examined(folder: Path, size: str, *mount_options: str) -> dict[str, dict[str, Any]]:
    """What is found with /dev/shm and ``folder``/disk of that size, by the check's name."""
    options = ",".join((f"size={size}", *mount_options))
    script = (
        f"mount -t tmpfs -o size={size} tmpfs /dev/shm && mount -t tmpfs -o {options} tmpfs {folder}/disk && "
        f"exec {sys.executable} -m bident doctor {folder}/models --all --json --target triton:25.05"
    )
    disk = str(folder / "disk")
    environ = {**os.environ, "TMPDIR": disk, "BIDENT_MODEL_CACHE_DIRECTORY": disk, "BIDENT_TEXT_MODELS": disk}
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    return {found["check"]: found for found in json.loads(done.stdout)["findings"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "models" / "detect" / "1").mkdir(parents=True)
    (tmp_path / "models" / "detect" / "config.pbtxt").write_text(PYTHON_MODEL)
    (tmp_path / "disk").mkdir()
    return tmp_path


def test_small_and_locked_disks_are_named(folder: Path) -> None:
    found = _examined(folder, "64m", "noexec")
    assert found["shared-memory-size"]["weight"] == "broken"
    assert "64 MiB are free, and 'detect' need" in found["shared-memory-size"]["seen"]
    assert found["disk-space"]["weight"] == "broken"
    assert "noexec" in found["temporary-folder"]["seen"]
    assert "tmpfs" in found["model-cache"]["cause"]


def test_a_disk_that_cannot_be_written(folder: Path) -> None:
    found = _examined(folder, "4g", "ro")["temporary-folder"]
    assert (found["weight"], found["seen"]) == ("broken", "nothing can be written there")


def test_large_ones_are_not(folder: Path) -> None:
    found = _examined(folder, "4g")
    assert {"shared-memory-size", "disk-space", "temporary-folder"}.isdisjoint(found)
