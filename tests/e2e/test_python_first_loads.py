"""Models that take long to load hold nobody up, and everybody can see what they are at."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from calendar import timegm
from pathlib import Path
from typing import Any

import pytest
from asking import Asker, x
from model_folders import write_identity, x_to_y
from python_folders import ECHO, waits_for, write_python
from serving import Launch, TensorServer, eventually


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    made = tmp_path / "repository"
    made.mkdir()
    return made


@pytest.fixture
def door(tmp_path: Path) -> Path:
    """A file that slow models wait for."""
    return tmp_path / "door"


def write_slow(repository: Path, name: str, door: Path, config: str = x_to_y()) -> None:
    write_python(repository, name, f"    def initialize(self, args):\n        {waits_for(door)}\n{ECHO}", config)


def answers(ask: Asker, model: str) -> bool:
    return ask.infer(model, x("FP32", [7])).status == 200


def entry(ask: Asker, name: str) -> dict[str, Any]:
    (found,) = [row for row in ask.post("/v2/repository/index").json if row["name"] == name]
    return found


def told(command: str, server: TensorServer) -> str:
    """What a command prints of the server."""
    words = [sys.executable, "-m", "bident", command, "--url", server.url("")]
    return subprocess.run(words, capture_output=True, text=True, timeout=30, check=True).stdout


def test_a_slow_first_load_holds_nothing_up_and_is_seen(launch: Launch, repository: Path, door: Path) -> None:
    write_slow(repository, "slow", door)
    write_identity(repository, "quick")
    write_identity(repository, "later")
    began = int(time.time())
    server = launch(repository, "--model-control-mode=explicit", "--load-model=slow", "--load-model=quick", wait=False)
    ask = Asker(server.port)
    eventually(lambda: "Started HTTPService" in server.log_text, "the doors are open")
    eventually(lambda: answers(ask, "quick"), "the quick model answers")

    assert ask.get("/v2/health/live").status == 200
    assert ask.get("/v2/health/ready").status == 400
    assert ask.get("/v2/models/quick").status == 200
    assert ask.load("later").status == 200
    assert answers(ask, "later")
    ask.infer("slow", x("FP32", [7])).refused("'slow' has no available versions", status=404)
    assert ask.get("/v2/models/slow/ready").status == 400

    eventually(lambda: entry(ask, "slow").get("state") == "LOADING", "the slow model is known to load")
    since = re.fullmatch(r"loading since (\S+Z)", entry(ask, "slow")["reason"])
    assert since
    assert began <= timegm(time.strptime(since[1], "%Y-%m-%dT%H:%M:%SZ")) <= time.time()
    assert re.search(r"^Loading:\n  slow 1: loading for \d+ s$", told("ps", server), re.MULTILINE)
    assert re.search(r"^\s*slow\s+1\s+LOADING\s+loading for \d+ s", told("ls", server), re.MULTILINE)

    door.touch()
    server.wait_ready()
    assert entry(ask, "slow") == {"name": "slow", "version": "1", "state": "READY"}
    assert answers(ask, "slow")
    assert "Loading" not in told("ps", server)


SLOW = {
    "initialize": ("    def initialize(self, args):\n        {wait}\n", ""),
    "auto_complete_config": (
        "    @staticmethod\n    def auto_complete_config(config):\n        {wait}\n        return config\n",
        "",
    ),
    "import": ("    @staticmethod\n    def auto_complete_config(config):\n        return config\n", "{wait}"),
}


@pytest.mark.parametrize("where", SLOW)
def test_any_number_of_slow_models_leave_room_for_another(
    launch: Launch, repository: Path, door: Path, where: str
) -> None:
    methods, before = (part.format(wait=waits_for(door)) for part in SLOW[where])
    slow = [f"slow{number}" for number in range(6)]
    for name in slow:
        write_python(repository, name, methods + ECHO, before=before)
    server = launch(repository, "--model-control-mode=explicit", *(f"--load-model={name}" for name in slow), wait=False)
    ask = Asker(server.port)
    eventually(lambda: "Started HTTPService" in server.log_text, "the doors are open")
    loading = {"state": "LOADING"}
    eventually(lambda: all(entry(ask, name).items() >= loading.items() for name in slow), "all six load")

    write_python(repository, "python", ECHO)
    write_identity(repository, "native")
    for name in ("python", "native"):
        assert ask.load(name).status == 200
        assert answers(ask, name)
    assert all(entry(ask, name)["state"] == "LOADING" for name in slow)

    door.touch()
    server.wait_ready()
    assert all(answers(ask, name) for name in slow)


def test_a_slow_model_does_not_keep_the_server_from_following_the_others(
    launch: Launch, repository: Path, door: Path
) -> None:
    write_slow(repository, "slow", door)
    server = launch(repository, "--model-control-mode=poll", "--repository-poll-secs=1", wait=False)
    ask = Asker(server.port)
    eventually(lambda: "Started HTTPService" in server.log_text, "the doors are open")
    write_identity(repository, "new")
    eventually(lambda: answers(ask, "new"), "the new model is found while the first one loads")
    write_slow(repository, "slow_too", door)
    eventually(lambda: entry(ask, "slow_too").get("state") == "LOADING", "another slow one is found")
    write_identity(repository, "newer")
    eventually(lambda: answers(ask, "newer"), "the newer model is found while two load")

    door.touch()
    server.wait_ready()
    eventually(lambda: answers(ask, "slow_too"), "the other slow one is there too")
    assert server.log_text.count("successfully loaded 'slow'") == 1


@pytest.mark.parametrize("count", [1, 2])
def test_the_index_says_what_is_being_started_anew(launch: Launch, repository: Path, door: Path, count: int) -> None:
    methods = (
        f"    def initialize(self, args):\n        {waits_for(door)}\n        self.pid = np.float64([os.getpid()])\n"
    )
    methods += """
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", self.pid)]) for _ in requests]
"""
    config = x_to_y("FP64") + f"instance_group [ {{ count: {count} }} ]\n"
    write_python(repository, "mortal", methods, config)
    door.touch()
    server = launch(repository)
    ask = Asker(server.port)
    (pid,) = ask.infer("mortal", x("FP64", [7])).data()
    door.unlink()
    os.kill(int(pid), signal.SIGKILL)

    row = eventually(lambda: "starting since" in (row := entry(ask, "mortal")).get("reason", "") and row, "it is seen")
    assert row["state"] == ("UNAVAILABLE" if count == 1 else "READY")
    assert re.match(rf"1 of {count} instances: 'mortal_0_\d' is starting since \S+Z\. Stub process", row["reason"])
    assert "SIGKILL" in row["reason"]
    assert ask.get("/v2/health/ready").status == (400 if count == 1 else 200)
    ready = ask.post("/v2/repository/index", {"ready": True}).json
    assert len(ready) == count - 1
    title = "Not available" if count == 1 else "Not every instance is there"
    assert re.search(rf"^{title}:\n  mortal 1: 1 of {count} .* is starting for \d+ s", told("ps", server), re.MULTILINE)

    door.touch()
    eventually(lambda: entry(ask, "mortal") == {"name": "mortal", "version": "1", "state": "READY"}, "it is back")
    assert ask.infer("mortal", x("FP64", [7])).status == 200
