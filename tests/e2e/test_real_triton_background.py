"""``bident up --engine triton``, as docs/how-to/real-triton.md has it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pages import sections, typed

from benchmarks.peers.triton import ENVIRONMENT
from benchmarks.ports import free_port
from bident.local.record import STATE_DIR, Record
from real_triton import make_triton, stubs_of

UP, RUN, PS, DOWN = sections("real-triton.md")["Start"].of("sh")[0].strip().splitlines()


@pytest.fixture
def folder(tmp_path: Path, iris: Path) -> Iterator[Path]:
    """A working folder with a repository, and ports of its own in its bident.toml; nothing runs there afterwards."""
    make_triton()
    shutil.copytree(iris, tmp_path / "model_repository" / iris.name)
    ports = [f"{door}-port = {free_port()}" for door in ("http", "grpc", "metrics")]
    (tmp_path / "bident.toml").write_text("\n".join(["[tensor]", *ports, "[text]", f"port = {free_port()}", ""]))
    yield tmp_path
    typed("bident down", tmp_path)


def test_up_run_restart_and_down(folder: Path) -> None:
    said = typed(UP, folder, {"TRITON_HOME": str(ENVIRONMENT)})
    record = Record.read(folder / STATE_DIR)
    assert record is not None
    assert record.url in said
    assert record.client().call("GET", "/v2")["version"] == "2.51.0"
    log = Path(record.log).read_text()
    triton = int(log.partition("the triton server (pid ")[2].partition(")")[0])
    assert psutil.Process(triton).terminal() is None
    assert "probabilities" in typed(RUN, folder)
    assert "iris_sklearn" in typed(PS, folder)

    broken = folder / "model_repository" / "broken" / "1"
    broken.mkdir(parents=True)
    (broken / "model.onnx").write_bytes(b"no onnx")
    told = typed("bident restart --engine=triton --exit-on-error=true 2>&1 || true", folder)
    assert "the server ended before it was ready. Why:\n  Triton ended after" in told
    assert "failed to load 'broken' version 1" in told
    assert not psutil.pid_exists(triton)
    assert not stubs_of(triton)
    assert "Nothing to stop" in typed(DOWN, folder)


def test_the_engine_may_be_a_setting_and_a_missing_installation_is_explained(folder: Path) -> None:
    settings = folder / "bident.toml"
    settings.write_text(settings.read_text().replace("[tensor]", '[tensor]\nengine = "triton"'))
    told = typed("bident up 2>&1 || true", folder, {"TRITON_HOME": "/nowhere"})
    assert "TRITON_HOME is /nowhere, which does not exist; install it" in told
