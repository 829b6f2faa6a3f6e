"""Roots of servers: what a killed one leaves is swept, what a live one has is not."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bident.model.scratch import Scratch, ScratchRoot

HOLD = "import sys; from pathlib import Path; from bident.model.scratch import Scratch, ScratchRoot\n"
HOLD += "root = ScratchRoot.make(Path(sys.argv[1])); Scratch.make(root.path); print(root.path, flush=True)\n"
HOLD += "sys.stdin.read()"


@pytest.fixture
def server(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield process
    process.kill()
    process.communicate()


def test_the_root_of_a_killed_server_is_swept_and_that_of_a_live_one_kept(tmp_path, server):
    left = Path(server.stdout.readline().strip())
    assert [path.name for path in left.iterdir() if path.is_dir()]

    first = ScratchRoot.make(tmp_path)
    assert left.is_dir(), "its server lives"
    server.send_signal(signal.SIGKILL)
    server.wait()
    second = ScratchRoot.make(tmp_path)

    assert sorted(tmp_path.iterdir()) == sorted([first.path, second.path])


def test_only_locked_roots_are_swept(tmp_path):
    (tmp_path / "bident-overlays-no-lock" / "models").mkdir(parents=True)
    (tmp_path / "bident-overlays-file").touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / ".lock").touch()
    (tmp_path / "bident-overlays-link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "bident-overlays-pipe").mkdir()
    os.mkfifo(tmp_path / "bident-overlays-pipe" / "a pipe")
    before = sorted(tmp_path.rglob("*"))

    ScratchRoot.make(tmp_path).remove()

    assert sorted(tmp_path.rglob("*")) == before


def test_a_root_goes_with_all_that_is_below_it(tmp_path):
    root = ScratchRoot.make(tmp_path)
    scratch = Scratch.make(root.path)
    (scratch.path / "m").mkdir()

    root.remove()
    root.remove()

    assert list(tmp_path.iterdir()) == []
