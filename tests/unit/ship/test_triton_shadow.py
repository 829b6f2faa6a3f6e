"""Shadow repositories: links where the Triton can, Bident inside its Python backend where it cannot."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from bident.model import pbtxt
from bident.ship.triton.shadow import Reading, Shadow
from tests.conftest import write_identity


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """One model of each kind: for a shim, for Python, and an ensemble of them."""
    models = tmp_path / "models"
    write_identity(models, "echo", more="instance_group [ { count: 2, kind: KIND_AUTO } ]")
    python = models / "code"
    (python / "1").mkdir(parents=True)
    (python / "1" / "model.py").write_text("")
    both = models / "both"
    (both / "1").mkdir(parents=True)
    (both / "config.pbtxt").write_text('platform: "ensemble"')
    return models


def shadow_of(*models: Path, folder: Path, reading: Reading | None = None) -> Shadow:
    made = Shadow(list(models), folder, ["python"], reading or Reading())
    made.refresh()
    return made


def config_of(shadow: Shadow, name: str) -> object:
    path = shadow.paths[0] / name / "config.pbtxt"
    return pbtxt.to_dict(pbtxt.parse(path.read_bytes(), str(path)))


def test_what_the_triton_can_serve_is_a_link_to_it(models: Path, tmp_path: Path) -> None:
    shadow = shadow_of(models, folder=tmp_path / "shadow")
    (path,) = shadow.paths
    assert sorted(entry.name for entry in path.iterdir()) == ["both", "code", "echo"]
    assert (path / "code").readlink() == models / "code"
    assert (path / "both").readlink() == models / "both"
    assert shadow.stood_in_for() == {"echo": "identity"}


def test_the_rest_runs_in_its_python_backend_and_looks_the_same(models: Path, tmp_path: Path) -> None:
    (models / "echo" / "labels.txt").write_text("a\n")
    (models / "echo" / "3").mkdir()
    shadow = shadow_of(models, folder=tmp_path / "shadow")
    config = config_of(shadow, "echo")
    assert isinstance(config, dict)
    assert (config["backend"], config["platform"], config["max_batch_size"]) == ("python", "", 8)
    assert [tensor["name"] for tensor in config["input"] + config["output"]] == ["X", "Y"]
    (group,) = config["instance_group"]
    assert (group["count"], group["kind"], group["gpus"]) == (2, "KIND_CPU", [])
    made = shadow.paths[0] / "echo"
    assert sorted(entry.name for entry in made.iterdir()) == ["1", "3", "config.pbtxt", "labels.txt"]
    assert (made / "labels.txt").read_text() == "a\n"
    source = json.loads((made / "3" / "model.json").read_text())
    assert source["directory"] == str(models / "echo")
    compile((made / "3" / "model.py").read_text(), "model.py", "exec")


def test_a_config_is_chosen_and_options_go_along(models: Path, tmp_path: Path) -> None:
    (models / "echo" / "configs").mkdir()
    chosen = (models / "echo" / "config.pbtxt").read_text().replace("max_batch_size: 8", "max_batch_size: 2")
    (models / "echo" / "configs" / "small.pbtxt").write_text(chosen)
    reading = Reading("small", options={"identity": {"a": "b"}})
    shadow = shadow_of(models, folder=tmp_path / "shadow", reading=reading)
    config = config_of(shadow, "echo")
    assert isinstance(config, dict)
    assert config["max_batch_size"] == 2
    assert json.loads((shadow.paths[0] / "echo" / "1" / "model.json").read_text())["options"] == reading.options


def test_changes_are_followed_and_nothing_else_is_touched(models: Path, tmp_path: Path) -> None:
    shadow = shadow_of(models, folder=tmp_path / "shadow")
    (path,) = shadow.paths
    before = (path / "echo").readlink()
    assert shadow.refresh() == []
    assert (path / "echo").readlink() == before

    config = models / "echo" / "config.pbtxt"
    config.write_text(config.read_text().replace("max_batch_size: 8", "max_batch_size: 16"))
    write_identity(models, "fresh")
    shutil.rmtree(models / "code")
    assert sorted(shadow.refresh()) == ["code", "echo", "fresh"]
    assert sorted(entry.name for entry in path.iterdir()) == ["both", "echo", "fresh"]
    assert (path / "echo").readlink() != before
    assert before.is_dir(), "a load that has begun may still read it"

    config.write_text('backend: "python"\n')
    assert shadow.refresh() == ["echo"]
    assert (path / "echo").readlink() == models / "echo"
    assert shadow.stood_in_for() == {"fresh": "identity"}
    shutil.rmtree(models / "echo")
    shadow.refresh()
    assert not before.exists()


def test_a_broken_model_gets_a_folder_that_will_say_why(models: Path, tmp_path: Path) -> None:
    (models / "bad" / "1").mkdir(parents=True)
    (models / "bad" / "1" / "model.onnx").write_bytes(b"junk")
    shadow = shadow_of(models, folder=tmp_path / "shadow")
    assert (shadow.paths[0] / "bad" / "1" / "model.py").is_file()
    config = config_of(shadow, "bad")
    assert isinstance(config, dict)
    assert config["backend"] == "python"


def test_what_nobody_can_read_is_left_to_triton_to_refuse(models: Path, tmp_path: Path) -> None:
    (models / "odd" / "1").mkdir(parents=True)
    (models / "odd" / "config.pbtxt").write_text("backend: {")
    shadow = shadow_of(models, folder=tmp_path / "shadow")
    assert (shadow.paths[0] / "odd").readlink() == models / "odd"


def test_a_full_disk_leaves_nothing_half_made_and_is_tried_again(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shadow = shadow_of(models, folder=tmp_path / "shadow")
    made = (shadow.paths[0] / "echo").readlink()
    write_identity(models, "fresh")

    def full(_from: Path, to: Path) -> None:
        assert to.parent.is_dir(), "it had begun"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfile", full)
        with pytest.raises(OSError, match="No space left"):
            shadow.refresh()
    assert list(made.parent.iterdir()) == [made]
    assert shadow.refresh() == ["fresh"]
    assert (shadow.paths[0] / "fresh" / "1" / "model.py").is_file()


def test_several_repositories_keep_apart_and_one_that_is_gone_loses_nothing(models: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_identity(other, "echo")
    shadow = shadow_of(models, other, folder=tmp_path / "shadow")
    first, second = shadow.paths
    assert (first / "echo").readlink() != (second / "echo").readlink()
    other.rename(tmp_path / "away")
    assert shadow.refresh() == []
    assert (second / "echo").is_dir()
