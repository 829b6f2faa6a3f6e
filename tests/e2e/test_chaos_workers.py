"""Workers are killed at random under load: every request has an answer or a clear error, and all come back."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from asking import tensor
from python_repository import one_instance, write_script
from serving import Launch, TensorServer, eventually

CHAOS_SECONDS = 60.0
BACK_SECONDS = 5.0
PATIENCE_SECONDS = 60.0
"""The deadline of each request: a machine that stands still for a while must not look like a server that does."""
CLIENTS = 8
SEED = 216
MODELS = ("pair", "twins", "lone", "asks")
REFUSALS = ("is not healthy", "is not ready", "is being restarted")
"""What an answer says, one of them, that is no result."""


def workers(server: TensorServer) -> list[int]:
    """The processes that the server has started and that have not ended."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            state, parent = status.read_text().rsplit(")", 1)[1].split()[:2]
            if int(parent) == server.pid and state != "Z":
                found.append(int(status.parent.name))
    return found


class Load:
    """Clients that ask until told to stop, and what became of their requests."""

    def __init__(self, port: int) -> None:
        self.outcomes: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.slowest = 0.0
        self._url = f"http://127.0.0.1:{port}"
        self._stop = threading.Event()
        self._lock = threading.Lock()

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(PATIENCE_SECONDS + 10)
        assert not any(thread.is_alive() for thread in threads), "a client still waits"

    def _ask(self, number: int) -> None:
        dice = random.Random(SEED + number)
        asked = 0
        with httpx.Client(base_url=self._url, timeout=PATIENCE_SECONDS, trust_env=False) as client:
            while not self._stop.is_set():
                asked += 1
                self._ask_once(client, dice.choice(MODELS), f"{number}.{asked}")

    def _ask_once(self, client: httpx.Client, model: str, expected: str) -> None:
        code = f"time.sleep(0.002); answer = {expected!r}"
        if model == "asks":
            code = f"answer = read(ask('twins', {code!r}).exec())"
        began = time.monotonic()
        try:
            answer = client.post(f"/v2/models/{model}/infer", json={"inputs": [tensor("CODE", "BYTES", [1], [code])]})
            outcome = self._judge(model, expected, answer)
        except httpx.HTTPError as error:
            outcome = f"WRONG {model}: {type(error).__name__}: {error}"
        with self._lock:
            self.slowest = max(self.slowest, time.monotonic() - began)
            if outcome.startswith("WRONG"):
                self.wrong.append(outcome)
            self.outcomes[outcome[:60]] += 1

    @staticmethod
    def _judge(model: str, expected: str, answer: httpx.Response) -> str:
        if answer.status_code == 200:
            (output,) = answer.json()["outputs"]
            said = output["data"][0].strip('"')
            if said == expected:
                return "answered"
            # The model that asks passes on what it is told: an error is an answer there.
            is_error = model == "asks" and said.startswith("error: ") and any(text in said for text in REFUSALS)
            return "told of an error" if is_error else f"WRONG {model}: {said[:200]}"
        text = answer.json().get("error", "")
        if answer.status_code in (500, 503) and any(refusal in text for refusal in REFUSALS):
            return f"refused {answer.status_code}"
        return f"WRONG {model}: {answer.status_code} {answer.text[:200]}"


def kill_at_random(server: TensorServer, seconds: float) -> int:
    """Kill one worker after the other, at irregular intervals; returns how many."""
    dice = random.Random(SEED)
    killed = 0
    before: set[int] = set()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        present = set(workers(server))
        # Who has only just come is let live: of workers that never get to work each waits longer than the last.
        if present & before:
            with suppress(ProcessLookupError):
                os.kill(dice.choice(sorted(present & before)), signal.SIGKILL)
                killed += 1
        before = present
        time.sleep(dice.uniform(0.1, 0.9))  # not a wait for anything: this is the pace of the chaos
    return killed


def all_ready(server: TensorServer) -> bool:
    """Whether every instance of every model is there."""
    rows = httpx.post(server.url("/v2/repository/index"), trust_env=False, timeout=PATIENCE_SECONDS).json()
    return all(row.get("state") == "READY" and not row.get("reason") for row in rows)


@pytest.mark.timeout(300)
def test_workers_killed_at_random_cost_no_client_its_answer(launch: Launch, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    for model in ("pair", "twins"):
        write_script(repository, model, one_instance(2))
    for model in ("lone", "asks"):
        write_script(repository, model)
    server = launch(repository)
    load = Load(server.port)
    with load.running():
        killed = kill_at_random(server, CHAOS_SECONDS)
    eventually(lambda: all_ready(server), "every instance is ready again", seconds=BACK_SECONDS)
    server.check_alive()
    assert not load.wrong, load.wrong[:10]
    assert load.slowest < PATIENCE_SECONDS
    assert killed > 10, killed
    assert load.outcomes["answered"] > 100, load.outcomes
    assert sum(count for outcome, count in load.outcomes.items() if outcome != "answered") > 0, "nobody was hit"
    with httpx.Client(base_url=server.url(""), timeout=PATIENCE_SECONDS, trust_env=False) as client:
        after = Load(server.port)
        for model in MODELS:
            after._ask_once(client, model, "0.0")
    assert after.outcomes == Counter(answered=len(MODELS)), after.wrong
    assert len(workers(server)) == 6
    assert "Traceback" not in server.log_text
