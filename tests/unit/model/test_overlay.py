import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bident.errors import Code, ConfigError, ServeError
from bident.model.overlay import materialise
from bident.model.scratch import Scratch


def everything(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_files_replace_the_folder(tmp_path):
    base = tmp_path / "repo" / "m"
    (base / "7").mkdir(parents=True)
    files = {"file:1/model.onnx": b"one", "file:1/deep/er/x.bin": b"", "file:labels.txt": b"a\n"}
    folder = materialise("m", base, '{"max_batch_size": 2}', files, tmp_path / "scratch")
    assert folder.directory.name == "m"
    assert everything(folder.directory) == ["1/deep/er/x.bin", "1/model.onnx", "labels.txt"]
    assert (folder.directory / "1" / "model.onnx").read_bytes() == b"one"
    assert folder.versions() == [1]
    assert folder.raw_config().max_batch_size == 2
    assert folder.raw_config().name == "m"


def test_two_overrides_of_one_model_do_not_meet(tmp_path):
    old, new = (materialise("m", None, "{}", {"file:1/a": bytes([turn])}, tmp_path) for turn in (0, 1))
    old.remove()
    assert not old.directory.exists()
    assert (new.directory / "1" / "a").read_bytes() == b"\1"
    new.remove()
    assert everything(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
    new.remove()


def test_a_config_alone_keeps_the_files_and_removes_nothing(tmp_path):
    base = tmp_path / "m"
    (base / "1").mkdir(parents=True)
    folder = materialise("m", base, '{"max_batch_size": 2}', {}, tmp_path / "scratch")
    assert folder.directory == base
    assert folder.raw_config().max_batch_size == 2
    folder.remove()
    assert (base / "1").is_dir()
    assert not (tmp_path / "scratch").exists()


def test_files_need_a_config(tmp_path):
    with pytest.raises(ServeError, match="Load parameter 'config' must be specified for model file override"):
        materialise("m", tmp_path, None, {"file:1/a": b""}, tmp_path)


def test_a_config_without_any_files_needs_a_folder(tmp_path):
    with pytest.raises(ServeError, match="failed to load 'm', failed to poll from model repository") as refused:
        materialise("m", None, "{}", {}, tmp_path)
    assert refused.value.code is Code.INTERNAL


def test_a_config_that_is_none_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ConfigError, match="Invalid config override"):
        materialise("m", None, "{", {"file:1/a": b""}, tmp_path / "scratch")
    assert not (tmp_path / "scratch").exists()


@pytest.mark.parametrize("name", ["../evil", "", "a/b", "..", ".", ".hidden", "lost+found", "a\udcff"])
def test_the_models_name_does_not_lead_out_either(tmp_path, name):
    other = materialise("m", None, "{}", {"file:1/a": b""}, tmp_path)
    with pytest.raises(ServeError) as refused:
        materialise(name, None, "{}", {"file:1/a": b""}, tmp_path)
    assert refused.value.code is Code.INVALID_ARG
    assert [path.name for path in tmp_path.iterdir()] == [other.scratch.path.name]


@pytest.mark.parametrize("path", [".", "..", "override-1/m", "other", "../elsewhere/override-1"])
def test_nothing_but_a_folder_of_its_own_is_ever_deleted(tmp_path, path):
    root = tmp_path / "root"
    for folder in (root / "override-1" / "m", root / "other", tmp_path / "elsewhere" / "override-1"):
        folder.mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match="no folder that was made below"):
        Scratch(root, root / path).remove()
    assert sorted(tmp_path.rglob("*")) == before


ESCAPES = ["../x", "/etc/x", "1/../../x", "1/../../../x", "..", "a\\b", "..\\x", "C:x", "c:/x", "a\0b"]


@pytest.mark.parametrize("path", ESCAPES)
def test_paths_out_of_the_folder_are_refused(tmp_path, path):
    with pytest.raises(ServeError, match="must stay within model directory") as refused:
        materialise("m", None, "{}", {"file:1/ok": b"", f"file:{path}": b""}, tmp_path)
    assert refused.value.code is Code.INVALID_ARG
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "path", ["", ".", "1//a", "1/./a", "1/../a", "1/", "x" * 256, "é" * 128, "d/" * 600 + "x", "\ud800"]
)
def test_doubtful_paths_are_refused(tmp_path, path):
    with pytest.raises(ServeError, match="Invalid file parameter") as refused:
        materialise("m", None, "{}", {f"file:{path}": b""}, tmp_path)
    assert refused.value.code is Code.INVALID_ARG
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("paths", [("1", "1/a"), ("x/y/z/a", "x/y")])
def test_a_name_that_is_a_file_and_a_folder_is_the_senders_mistake(tmp_path, paths):
    with pytest.raises(ServeError, match="it is also the folder of") as refused:
        materialise("m", None, "{}", {f"file:{path}": b"" for path in paths}, tmp_path)
    assert refused.value.code is Code.INVALID_ARG
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_refuses_is_an_answer(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ServeError, match="cannot write its override files") as refused:
        materialise("m", None, "{}", {"file:1/a": b""}, tmp_path / "file")
    assert refused.value.code is Code.INTERNAL


def test_a_full_disk_is_an_answer_that_names_no_none_and_leaves_nothing(tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ServeError, match="No space left on device; check the space") as refused:
        materialise("m", None, "{}", {"file:1/a": b""}, tmp_path)
    assert "None" not in refused.value.message
    assert list(tmp_path.iterdir()) == []


@given(
    st.lists(
        st.one_of(st.text(max_size=8), st.sampled_from(["..", ".", "", "a", "~", "C:", "\\"])), min_size=1, max_size=6
    )
)
def test_no_name_ever_escapes(tmp_path_factory, parts):
    root = tmp_path_factory.mktemp("override")
    scratch = root / "scratch"
    try:
        folder = materialise("m", None, "{}", {"file:" + "/".join(parts): b"x"}, scratch)
    except ServeError:
        assert everything(root) == []
        return
    assert [Path(name).parts[0] for name in everything(root)] == ["scratch"]
    assert len(everything(folder.directory)) == 1
    folder.remove()
    assert list(scratch.iterdir()) == []
