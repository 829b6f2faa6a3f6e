"""A lane is measured only if the model is in it."""

import subprocess
import sys

import pytest

from benchmarks.python_bench import check_lanes
from benchmarks.servers import Server

HOST = """
import subprocess, sys
children = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(int(sys.argv[1]))]
print("ready", flush=True)
sys.stdin.read()
for child in children: child.communicate()
"""


class Host(Server):
    def __init__(self, pid):
        self._pid = pid

    @property
    def pid(self):
        return self._pid


@pytest.fixture
def host():
    hosts = []

    def start(workers):
        command = [sys.executable, "-c", HOST, str(workers)]
        hosts.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        hosts[-1].stdout.readline()
        return Host(hosts[-1].pid)

    yield start
    for process in hosts:
        process.communicate()


def test_one_worker_for_the_process_lane(host):
    check_lanes(host(1))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_model_in_the_other_lane_is_noticed(host, workers):
    with pytest.raises(RuntimeError, match=f"there are {workers} of them"):
        check_lanes(host(workers))
