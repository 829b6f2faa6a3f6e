"""Memory is summed over a process and all it started."""

import subprocess
import sys

import psutil
import pytest

from benchmarks.processes import held_megabytes, total_kilobytes

HOLD = "import sys; kept = b'x' * 50_000_000; print('ready', flush=True); sys.stdin.read()"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HOLD!r}])"


def test_descendants_count_and_strangers_do_not():
    listing = " 10 1 1000\n 11 10 200\n 12 11 30\n 20 1 5000\n"
    assert total_kilobytes(listing, 10) == 1230
    assert total_kilobytes(listing, 12) == 30


@pytest.mark.skipif(sys.platform != "linux", reason="proportional sizes are Linux's")
def test_what_a_child_holds_is_told_apart():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        parent.stdout.readline()
        held = held_megabytes(parent.pid)
        assert 50 <= held.by_children < 100
        assert 1 < held.by_itself < 50
        (child,) = psutil.Process(parent.pid).children()
        with pytest.raises(RuntimeError, match="no children"):
            held_megabytes(child.pid)
        parent.stdin.close()
