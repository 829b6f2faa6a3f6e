"""The response cache, the rate limiter and warmup, over HTTP: as a real Triton 2.51 serves the same models.

Its answers in ``data/triton_2_51_cache_rate_warmup.json`` were taken down once: CI has none.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from asking import Asker, tensor
from cache_rate_warmup_cases import (
    ANSWERS,
    CACHE,
    CACHE_FLAGS,
    EXPLICIT,
    LIMIT_FLAGS,
    LIMITED,
    WARM,
    ask_cached,
    cache_metrics,
    figures,
    load_limited,
    load_warm,
    write,
)
from model_folders import write_identity, write_model, x_to_y
from python_folders import ECHO, write_python
from serving import Gate, Launch, TensorServer, eventually

KEPT: dict[str, dict[str, Any]] = json.loads(ANSWERS.read_text(encoding="utf-8"))

WORDED_DIFFERENTLY = {
    "cut_strings": "incomplete string length indicator for inference input 'X'",
    "short_file": "warmup setting expects 8 bytes, but the data provided from x only has 4 bytes",
}
"""Where 2.51's words are odd, or less than Bident knows."""

QUESTION = tensor("X", "FP32", [1], [1])
GIVEN = "data_type: TYPE_FP32 dims: 1 random_data: true"
SAMPLE = f'model_warmup {{ name: "s" batch_size: 1 inputs {{ key: "X" value {{ {GIVEN} }} }} }}'
LIMIT = 'instance_group { kind: KIND_CPU rate_limiter { resources { name: "R" count: 1 } } }\n'
GATED = 'backend: "gated"\n' + x_to_y()


def _reason(error: str) -> str:
    """Why a load failed, in Triton's words: without what they call the code, and what the note on batches says."""
    reason = re.sub(r".* state: ((Invalid argument|Internal): )?(\[request id: <id_unknown>\] )?", "", error.strip())
    return reason.removesuffix(";").split(" NOTE: ")[0]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "repository"
    write(folder)
    return folder


@pytest.fixture(scope="module")
def server(repository: Path, plugins: Path) -> Iterator[TensorServer]:
    """Has a cache."""
    started = TensorServer(repository, repository.parent / "cache.log", *EXPLICIT, *CACHE_FLAGS, plugins=plugins)
    with started:
        yield started


# As a real Triton


def test_cached_models_answer_and_count_as_tritons(server: TensorServer) -> None:
    assert ask_cached(Asker(server.port)) == KEPT["cached"]
    page = Asker(server.metrics_port).get("/metrics").body.decode()
    assert cache_metrics(page) == KEPT["metrics"]
    assert set(re.findall("^# TYPE (nv_cache_.*_per_model) counter$", page, re.MULTILINE)) == {
        "nv_cache_num_hits_per_model",
        "nv_cache_hit_duration_per_model",
        "nv_cache_num_misses_per_model",
        "nv_cache_miss_duration_per_model",
    }
    assert 0 < float(re.findall("^nv_cache_util (.*)$", page, re.MULTILINE)[0]) < 1


def test_warmup_runs_and_fails_as_tritons(server: TensorServer, repository: Path) -> None:
    told = load_warm(Asker(server.port), repository)
    assert told.keys() == KEPT["warm"].keys() == WARM.keys()
    for name, kept in KEPT["warm"].items():
        _compare(name, told[name], kept)


def test_resources_are_checked_as_tritons(launch: Launch, repository: Path) -> None:
    server = launch(repository, *EXPLICIT, *LIMIT_FLAGS)
    told = load_limited(Asker(server.port), repository)
    assert told.keys() == KEPT["limited"].keys() == LIMITED.keys()
    for name, kept in KEPT["limited"].items():
        _compare(name, told[name], kept)


def _compare(name: str, told: dict[str, Any], kept: dict[str, Any]) -> None:
    assert told["status"] == kept["status"], (name, told, kept)
    if kept["status"] == 200:
        assert told["figures"] == kept["figures"], name
    else:
        wanted = WORDED_DIFFERENTLY.get(name, _reason(kept["error"]))
        assert _reason(told["error"]).startswith(wanted), (name, told, kept)


# The cache


def test_binary_and_json_are_the_same_question(launch: Launch, tmp_path: Path) -> None:
    write_identity(tmp_path / "models", "m", more=CACHE)
    server = launch(tmp_path / "models", *CACHE_FLAGS)
    ask = Asker(server.port)

    first = ask.infer("m", tensor("X", "FP32", [2], [1, 2]))
    again = ask.infer_binary("m", [tensor("X", "FP32", [2], binary_data_size=8)], b"\0\0\x80?\0\0\0@")

    assert first.data() == again.data() == [1, 2]
    counted = figures(ask, "m")
    assert (counted["cache_hit"], counted["cache_miss"], counted["executions"]) == (1, 1, 1)


def test_a_reload_forgets_what_the_old_model_said(launch: Launch, tmp_path: Path) -> None:
    models = tmp_path / "models"
    config = x_to_y() + CACHE
    write_python(models, "m", ECHO, config)
    server = launch(models, *EXPLICIT, "--load-model=m", *CACHE_FLAGS)
    ask = Asker(server.port)
    assert [ask.infer("m", QUESTION).data() for _ in range(2)] == [[1], [1]]

    write_python(models, "m", ECHO.replace('pb_utils.Tensor("Y", array)', 'pb_utils.Tensor("Y", array + 1)'), config)
    assert ask.post("/v2/repository/models/m/load", {}).status == 200

    assert [ask.infer("m", QUESTION).data() for _ in range(2)] == [[2], [2]]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--cache-config=local,size=0"], "config didn't contain a valid 'size' field"),
        (["--cache-config=redis,host=x"], "unable to find 'redis' for cache"),
        (
            ["--cache-config=local,size=1", "--cache-config=redis,host=x"],
            "found multiple cache configurations, but only a single cache is currently supported",
        ),
        (["--cache-config=local,size=9", "--response-cache-byte-size=9"], "Incompatible flags"),
    ],
)
def test_a_cache_that_cannot_be_made_keeps_the_server_from_starting(
    launch: Launch, tmp_path: Path, flags: list[str], said: str
) -> None:
    (tmp_path / "models").mkdir()
    server = launch(tmp_path / "models", *flags, wait=False)
    assert server.wait() != 0
    assert said in server.log_text
    assert "Traceback" not in server.log_text


# The rate limiter


@pytest.mark.parametrize("flags", [(), ("--rate-limit=execution_count",)])
def test_models_that_need_the_same_resource_take_turns(
    launch: Launch, tmp_path: Path, gate: Gate, flags: tuple[str, ...]
) -> None:
    models = tmp_path / "models"
    gate.close()
    for name in ("one", "other"):
        write_model(models, name, GATED + LIMIT + gate.parameters())
    write_identity(models, "free")
    server = launch(models, *flags)
    clients = [Asker(server.port) for _ in range(2)]

    with ThreadPoolExecutor() as threads:
        first = threads.submit(clients[0].infer, "one", QUESTION)
        gate.wait_for_batches(1)
        second = threads.submit(clients[1].infer, "other", QUESTION)
        if not flags:
            gate.wait_for_batches(2)  # nobody limits anything
        ask = Asker(server.port)
        assert [ask.infer("free", QUESTION).data() for _ in range(20)] == [[1]] * 20
        assert len(gate.batches) == (1 if flags else 2)
        gate.open()
        assert first.result().data() == second.result().data() == [1]
    assert len(gate.batches) == 2


def test_a_model_may_ask_another_that_needs_what_it_holds(launch: Launch, tmp_path: Path) -> None:
    models = tmp_path / "models"
    asks = """
    def execute(self, requests):
        asked = pb_utils.InferenceRequest(
            model_name="asked", requested_output_names=["Y"], inputs=requests[0].inputs()
        )
        return [pb_utils.InferenceResponse(asked.exec().output_tensors())]
"""
    write_python(models, "asks", asks, x_to_y() + LIMIT)
    write_python(models, "asked", ECHO, x_to_y() + LIMIT)
    server = launch(models, "--rate-limit=execution_count")

    assert Asker(server.port).infer("asks", QUESTION).data() == [1]


def test_a_worker_that_dies_gives_back_what_it_held(launch: Launch, tmp_path: Path) -> None:
    models = tmp_path / "models"
    write_python(models, "dies", "    def execute(self, requests):\n        os._exit(3)\n", x_to_y() + LIMIT)
    write_python(models, "lives", ECHO, x_to_y() + LIMIT)
    server = launch(models, "--rate-limit=execution_count")
    ask = Asker(server.port)

    assert ask.infer("dies", QUESTION).status >= 500
    assert ask.infer("lives", QUESTION).data() == [1]


# Warmup


def test_a_server_with_a_warmup_that_hangs_serves_the_others_and_stops(
    launch: Launch, tmp_path: Path, gate: Gate
) -> None:
    models = tmp_path / "models"
    gate.close()
    write_model(models, "hangs", GATED + gate.parameters() + SAMPLE)
    write_identity(models, "works", more=SAMPLE)
    server = launch(models, wait=False)
    gate.wait_for_batches(1)
    ask = Asker(server.port)

    eventually(lambda: ask.get("/v2/models/works/ready").status == 200, "the other model is ready")
    assert ask.get("/v2/models/hangs/ready").status != 200
    server.signal(signal.SIGTERM)

    assert server.wait() == 0


def test_a_worker_that_dies_while_it_is_warmed_up_fails_the_load(launch: Launch, tmp_path: Path) -> None:
    models = tmp_path / "models"
    write_python(models, "dies", "    def execute(self, requests):\n        os._exit(3)\n", x_to_y() + SAMPLE)
    server = launch(models, *EXPLICIT)
    ask = Asker(server.port)

    ask.post("/v2/repository/models/dies/load", {}).refused("failed to run warmup sample 's': ")

    assert "Traceback" not in server.log_text
