"""Memory is summed over a process and all it started."""

import os
import subprocess
import sys

import pytest

from benchmarks.processes import held_megabytes, total_kilobytes

HOLD = "import sys; kept = b'x' * 50_000_000; print('ready', flush=True); sys.stdin.read()"


def test_descendants_count_and_strangers_do_not():
    listing = " 10 1 1000\n 11 10 200\n 12 11 30\n 20 1 5000\n"
    assert total_kilobytes(listing, 10) == 1230
    assert total_kilobytes(listing, 12) == 30


@pytest.mark.skipif(sys.platform != "linux", reason="proportional sizes are Linux's")
def test_what_a_child_holds_is_told_apart():
    with subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        held = held_megabytes(os.getpid())
        assert 50 <= held.by_children < 100
        assert held.by_itself > 1
        with pytest.raises(RuntimeError, match="no children"):
            held_megabytes(child.pid)
        child.stdin.close()
