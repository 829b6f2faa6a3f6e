"""Several workers on the same ports: one server to its clients, whatever happens to one of them."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from model_folders import parameters, write_identity, write_model, x_to_y
from serving import Gate, Launch, TensorServer, eventually
from wire_http import infer_body

WORKERS = 2
FLAGS = (f"--workers={WORKERS}", "--model-control-mode=explicit", "--load-model=same")
ASKED = 24
"""Requests on connections of their own: so many leave no worker out, but for one time in eight million."""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    made = tmp_path / "repository"
    made.mkdir()
    write_identity(made, "same")
    write_identity(made, "later")
    return made


@pytest.fixture(scope="module")
def server(plugins: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TensorServer]:
    """One for all tests that put back what they change."""
    folder = tmp_path_factory.mktemp("shared")
    for name in ("same", "later"):
        write_identity(folder / "repository", name)
    batching = 'sequence_batching { control_input { name: "START" control { kind: CONTROL_SEQUENCE_START '
    batching += "fp32_false_true: [ 0, 1 ] } } }"
    write_model(folder / "repository", "talk", f'backend: "identity"\nmax_batch_size: 4\n{x_to_y()}{batching}')
    with TensorServer(folder / "repository", folder / "server.log", *FLAGS, plugins=plugins) as made:
        yield made
        assert "Traceback" not in made.log_text


def workers(server: TensorServer) -> dict[int, int]:
    """Process ids by worker number, as the log has them last."""
    found = re.findall(r"worker (\d+) \(pid (\d+)\) started", server.log_text)
    return {int(number): int(pid) for number, pid in found}


def call(server: TensorServer, verb: str, path: str, **more: Any) -> httpx.Response:
    return httpx.request(verb, f"http://127.0.0.1:{server.port}{path}", trust_env=False, timeout=20, **more)


def statuses(server: TensorServer, model: str) -> set[int]:
    """What many connections are answered."""
    path = f"/v2/models/{model}/infer"
    return {call(server, "POST", path, content=infer_body([1])).status_code for _ in range(ASKED)}


def control(server: TensorServer, model: str, verb: str, **parameters: Any) -> httpx.Response:
    body = json.dumps({"parameters": parameters}) if parameters else ""
    return call(server, "POST", f"/v2/repository/models/{model}/{verb}", content=body)


def counted(server: TensorServer, model: str) -> int:
    """Inferences of ``model``, as /stats has them."""
    (row,) = call(server, "GET", f"/v2/models/{model}/stats").json()["model_stats"]
    return int(row["inference_count"])


def metric(server: TensorServer, name: str, model: str) -> int:
    page = httpx.get(f"http://127.0.0.1:{server.metrics_port}/metrics", trust_env=False).text
    (line,) = [line for line in page.splitlines() if line.startswith(f'{name}{{model="{model}"')]
    return int(line.rsplit(" ", 1)[1])


def override(**changes: Any) -> str:
    tensor = {"name": "X", "data_type": "TYPE_FP32", "dims": [-1]}
    return json.dumps({"backend": "identity", "input": [tensor], "output": [{**tensor, "name": "Y"}], **changes})


def all_there(server: TensorServer) -> bool:
    """Whether every worker is in service: its doors are open when it says so."""
    pids = workers(server)
    started = re.findall(rf" {server.pid}\.(\d+) \S+\] \"Started HTTPService", server.log_text)
    begun = re.findall(r"worker (\d+) \(pid", server.log_text)
    return all(psutil.pid_exists(pid) for pid in pids.values()) and len(started) == len(begun)


def test_figures_are_those_of_all_whoever_is_asked(server: TensorServer) -> None:
    before = counted(server, "same")
    assert statuses(server, "same") == {200}
    for _ in range(6):
        assert counted(server, "same") == before + ASKED
        assert metric(server, "nv_inference_request_success", "same") == before + ASKED
    rows = call(server, "GET", "/v2/models/stats").json()["model_stats"]
    assert [row["name"] for row in rows] == ["same"]  # once, and not once for each worker
    assert sum(batch["compute_infer"]["count"] for batch in rows[0]["batch_stats"]) == rows[0]["execution_count"]


def test_what_one_loads_and_unloads_all_do_before_it_is_answered(server: TensorServer) -> None:
    assert control(server, "later", "load").status_code == 200
    assert statuses(server, "later") == {200}
    assert control(server, "later", "unload").status_code == 200
    assert statuses(server, "later") == {404}
    files = {"file:1/notes.txt": base64.b64encode(b"anything").decode()}
    assert control(server, "sent", "load", config=override(), **files).status_code == 200
    assert statuses(server, "sent") == {200}
    states = {row["name"]: row.get("state") for row in call(server, "POST", "/v2/repository/index").json()}
    assert states == {"same": "READY", "later": "UNAVAILABLE", "sent": "READY", "talk": None}
    assert control(server, "sent", "unload").status_code == 200


def test_a_load_that_is_refused_changes_nothing_anywhere(server: TensorServer) -> None:
    assert control(server, "nobody", "load").status_code == 500
    broken = control(server, "same", "load", config=override(backend="none_such"))
    assert broken.status_code == 400
    assert "none_such" in broken.json()["error"]
    assert statuses(server, "same") == {200}
    assert call(server, "GET", "/v2/health/ready").status_code == 200


def test_a_worker_that_dies_during_a_load_does_not_hold_up_the_others(
    repository: Path, launch: Launch, tmp_path: Path, pool_of: Callable[[int], Any]
) -> None:
    gate = Gate(tmp_path / "load_gate")
    write_model(repository, "held", f'backend: "gated"\n{x_to_y()}' + gate.parameters(at_load=True))
    server = launch(repository, *FLAGS)
    with pool_of(1) as pool:
        loading = pool.submit(control, server, "held", "load")
        gate.wait_for_batches(WORKERS)  # each has noted that it loads
        assert statuses(server, "held") == {404}  # none of them serves it yet
        os.kill(workers(server)[2], signal.SIGKILL)
        gate.open()
        try:
            assert loading.result(20).status_code == 200
        except httpx.TransportError:  # it was the one that was asked; the others have agreed all the same
            eventually(lambda: 200 in statuses(server, "held"), "the other serves it")
    eventually(lambda: all_there(server), "the killed one is back")
    assert statuses(server, "held") == {200}


def test_a_worker_that_dies_is_replaced_by_one_with_the_same_models(repository: Path, launch: Launch) -> None:
    server = launch(repository, *FLAGS)
    control(server, "sent", "load", config=override(), **{"file:1/n": ""})
    control(server, "later", "load")
    control(server, "same", "unload")
    statuses(server, "later")
    assert counted(server, "later") == metric(server, "nv_inference_request_success", "later") == ASKED
    for number in (1, 2):
        killed = workers(server)[number]
        os.kill(killed, signal.SIGKILL)
        eventually(lambda killed=killed, number=number: workers(server)[number] != killed, "a new one is started")
        assert statuses(server, "later") <= {200}
        eventually(lambda: all_there(server), "its doors are open")
    for model, expected in (("later", {200}), ("sent", {200}), ("same", {404})):
        assert statuses(server, model) == expected
    assert call(server, "GET", "/v2/health/ready").status_code == 200
    assert counted(server, "later") >= 3 * ASKED  # what the dead have counted counts on
    assert "killed by SIGKILL" in server.log_text
    assert control(server, "same", "load").status_code == 200
    assert statuses(server, "same") == {200}


def test_the_server_ends_with_its_workers(repository: Path, launch: Launch) -> None:
    server = launch(repository, *FLAGS)
    pids = workers(server).values()
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_running(repository: Path, launch: Launch, number: int) -> None:
    server = launch(repository, *FLAGS)
    pids = list(workers(server).values())
    server.signal(number)
    server.wait()
    eventually(lambda: all(gone(pid) for pid in pids), "the workers have ended")


def test_what_is_accepted_is_answered_before_the_end(
    repository: Path, launch: Launch, gate: Gate, pool_of: Callable[[int], Any]
) -> None:
    held = gate.parameters() + parameters(LANE="thread")
    write_model(repository, "held", f'backend: "gated"\n{x_to_y()}{held}')
    server = launch(repository, *FLAGS, "--load-model=held")
    with pool_of(2) as pool:
        asked = pool.submit(call, server, "POST", "/v2/models/held/infer", content=infer_body([7]))
        gate.wait_for_batches(1)
        server.signal(signal.SIGTERM)
        eventually(lambda: server.log_text.count("Signal (15) received") > WORKERS, "all have been told")
        gate.open()
        assert asked.result(20).json()["outputs"][0]["data"] == [7.0]
    assert server.wait() == 0


@pytest.fixture
def pool_of() -> Callable[[int], Any]:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor


def test_a_model_that_cannot_be_loaded_keeps_the_server_from_starting(repository: Path, launch: Launch) -> None:
    write_model(repository, "broken", 'backend: "none_such"')
    server = launch(repository, "--workers=2", wait=False)
    assert server.wait() == 1
    assert "failed to load all models: broken" in server.log_text
    assert "before the server had started" in server.log_text


def test_a_port_in_use_is_found_before_any_worker_starts(repository: Path, launch: Launch) -> None:
    with socket.socket() as holder:
        if sys.platform == "linux":  # even where the holder would share it
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        server = launch(repository, "--workers=2", f"--http-port={holder.getsockname()[1]}", wait=False)
        assert server.wait() == 1
    assert "already in use" in server.log_text
    assert not workers(server)


def test_free_ports_are_the_same_for_all(repository: Path, launch: Launch) -> None:
    server = launch(repository, "--workers=2", "--http-port=0", wait=False)
    pattern = r"Started HTTPService at 127\.0\.0\.1:(\d+)"
    eventually(lambda: len(re.findall(pattern, server.log_text)) == 2, "both listen")
    (port,) = set(re.findall(pattern, server.log_text))
    answer = httpx.get(f"http://127.0.0.1:{port}/v2/health/live", trust_env=False)
    assert answer.status_code == 200


def test_log_lines_name_the_worker(server: TensorServer) -> None:
    for number in range(1, WORKERS + 1):
        assert re.search(
            rf"^I\d{{4}} \S+ {server.pid}\.{number} \S+\] \"successfully loaded 'same'", server.log_text, re.M
        )


def test_sequences_are_refused_with_the_reason(server: TensorServer) -> None:
    refused = control(server, "talk", "load")
    assert refused.status_code == 400
    assert "use --workers=1" in refused.json()["error"]
    assert control(server, "talk", "unload").status_code == 200  # a failed load makes a server unready
