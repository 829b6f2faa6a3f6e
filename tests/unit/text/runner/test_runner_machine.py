from __future__ import annotations

import os
import platform

import pytest

from bident.text.runner import machine
from bident.text.runner.cgroup import Cgroup

GIB = 1 << 30


def group(tmp_path, files, membership="0::/"):
    """Control groups that consist of ``files``: contents by path."""
    for path, text in files.items():
        target = tmp_path / "mount" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "membership").write_text(membership)
    return Cgroup(tmp_path / "mount", tmp_path / "membership")


def test_a_unified_group_is_bound_by_those_it_is_in(tmp_path):
    found = group(
        tmp_path,
        {
            "service/cpu.max": "150000 100000",
            "service/one/cpu.max": "max 100000",
            "service/memory.max": str(2 * GIB),
            "service/memory.current": str(GIB),
            "service/memory.stat": f"anon 5\ninactive_file {GIB // 2}\n",
            "service/one/memory.max": "max",
            "service/one/memory.current": "100",
        },
        "0::/service/one\n",
    )
    assert found.cores() == 1.5
    assert found.memory() == GIB + GIB // 2


def test_older_groups(tmp_path):
    found = group(
        tmp_path,
        {
            "cpu/docker/cpu.cfs_quota_us": "50000",
            "cpu/docker/cpu.cfs_period_us": "100000",
            "cpu/cpu.cfs_quota_us": "-1",
            "cpu/cpu.cfs_period_us": "100000",
            "memory/memory.limit_in_bytes": "9223372036854771712",
            "memory/memory.usage_in_bytes": "100",
            "memory/docker/memory.limit_in_bytes": str(GIB),
            "memory/docker/memory.usage_in_bytes": str(2 * GIB),
            "memory/docker/memory.stat": "total_inactive_file 7\n",
        },
        "4:memory:/docker\n1:cpu,cpuacct:/docker\n",
    )
    assert found.cores() == 0.5
    assert found.memory() == 0


@pytest.mark.parametrize("membership", ["", "0::/../../elsewhere", "garbage", "0::/not/here"])
def test_without_limits(tmp_path, membership):
    found = group(tmp_path, {"cpu.max": "max 100000", "memory.max": "max", "memory.current": "x"}, membership)
    assert (found.cores(), found.memory()) == (None, None)


def test_cores_are_the_least_of_affinity_and_quota(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    assert machine.usable_cores(group(tmp_path, {})) == 6
    assert machine.usable_cores(group(tmp_path, {"cpu.max": "250000 100000"})) == 2
    assert machine.usable_cores(group(tmp_path, {"cpu.max": "10000 100000"})) == 1


def test_available_memory_is_bound_by_the_group(tmp_path):
    files = {"memory.max": "1000", "memory.current": "400"}
    assert machine.available_memory(group(tmp_path, files)) == 600
    assert machine.available_memory(group(tmp_path / "free", {})) > 1000


def test_memory_of_a_process():
    used, files = machine.memory_of(os.getpid())
    assert used > files > 0
    assert machine.memory_of(2**22 + 1) == (0, 0)


def test_a_processor_without_avx2(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert machine.missing_flags("model name : Old\nflags\t\t: fpu sse2 fma\n") == ["avx2", "bmi2", "f16c"]
    assert machine.missing_flags("flags : avx2 bmi2 f16c fma\n") == []
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert machine.missing_flags("flags : fpu") == []


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("_cpu_information", lambda: "flags : sse2", "the processor lacks avx2"),
        ("_loads", lambda _: False, "install libgomp1"),
    ],
)
def test_what_is_missing_is_said_before_a_process_is_started(monkeypatch, name, value, said):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(machine, name, value)
    machine._problem.cache_clear()
    try:
        with pytest.raises(machine.ServeError, match=f"text models cannot be run here: .*{said}"):
            machine.require_llama_cpp()
    finally:
        machine._problem.cache_clear()


def test_without_the_package(monkeypatch):
    monkeypatch.setattr(machine.importlib.util, "find_spec", lambda _: None)
    machine._problem.cache_clear()
    try:
        with pytest.raises(machine.ServeError, match=r"pip install \"bident\[text\]\""):
            machine.require_llama_cpp()
    finally:
        machine._problem.cache_clear()
