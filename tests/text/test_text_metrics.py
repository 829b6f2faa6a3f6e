"""The figures of a real text server, before and after requests of which it is known what they are."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from text_serving import TextServing

from benchmarks.ports import free_port

ASK = {"model": "smollm2", "prompt": "Count to ten.", "options": {"num_predict": 5, "temperature": 0}}
ANSWERED = 'bident_text_requests_total{kind="answer",model="smollm2:latest",outcome="%s"}'


def figures(client: httpx.Client) -> dict[str, float]:
    """The page, by series."""
    answer = client.get("/metrics")
    assert answer.status_code == 200
    rows = re.findall(r"^([a-z].*) (\S+)$", answer.text, re.MULTILINE)
    assert len(rows) == len({name for name, _ in rows})
    return {name: float(value) for name, value in rows}


@pytest.fixture
def grown(serving: TextServing) -> Callable[[str], float]:
    """By how much a series has grown since the test began."""
    with serving.client() as client:
        before = figures(client)

    def by(series: str) -> float:
        with serving.client() as client:
            return figures(client).get(series, 0.0) - before.get(series, 0.0)

    return by


def test_an_answer(serving: TextServing, grown: Callable[[str], float]) -> None:
    with serving.client() as client:
        said = client.post("/api/generate", json={**ASK, "stream": False}).json()
        now = figures(client)
    assert grown(ANSWERED % "success") == 1
    assert grown('bident_text_answer_tokens_total{model="smollm2:latest"}') == said["eval_count"] == 5
    assert grown('bident_text_prompt_tokens_total{model="smollm2:latest"}') >= said["prompt_eval_count"]
    assert grown('bident_text_answer_seconds_total{model="smollm2:latest"}') == pytest.approx(
        said["eval_duration"] / 1e9, abs=1e-6
    )
    assert grown('bident_text_first_token_seconds_count{model="smollm2:latest"}') == 1
    assert now['bident_text_model_memory_bytes{model="smollm2:latest"}'] > 50e6
    assert now['bident_text_model_slots{model="smollm2:latest"}'] >= 1
    assert now['bident_text_model_loads_total{model="smollm2:latest"}'] >= 1
    assert now["bident_text_models_loaded"] >= 1
    assert now['bident_text_requests_under_way{model="smollm2:latest"}'] == 0


def test_the_other_protocols_and_kinds(serving: TextServing, grown: Callable[[str], float]) -> None:
    chat = {"model": "smollm2", "max_tokens": 3, "messages": [{"role": "user", "content": "Hi"}]}
    with serving.client() as client:
        client.post("/v1/chat/completions", json=chat).raise_for_status()
        client.post("/v1/messages", json=chat).raise_for_status()
        client.post("/v1/embeddings", json={"model": "minilm", "input": "a cat"}).raise_for_status()
        assert client.post("/v1/chat/completions", json={**chat, "model": "no-such-model"}).status_code == 404
    assert grown(ANSWERED % "success") == 2
    assert grown('bident_text_requests_total{kind="embed",model="minilm:latest",outcome="success"}') == 1
    assert grown('bident_text_requests_total{kind="answer",model="",outcome="refused"}') == 1


def test_a_client_that_goes_away(serving: TextServing, grown: Callable[[str], float]) -> None:
    with serving.client() as client, client.stream("POST", "/api/generate", json={**ASK, "options": {}}) as answer:
        next(answer.iter_lines())
    deadline = time.monotonic() + 20
    while grown(ANSWERED % "abandoned") != 1:
        assert time.monotonic() < deadline
    assert grown(ANSWERED % "success") == 0


def test_only_who_may_use_the_server_sees_them(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("secret\n", encoding="utf-8")
    server = TextServing(tmp_path, f"--api-key-file={keys}")
    try:
        with server.client() as client:
            assert client.get("/metrics").status_code == 401
            assert "bident_text_info" in client.get("/metrics", headers={"Authorization": "Bearer secret"}).text
            assert client.get("/metrics", headers={"Host": "evil.example"}).status_code == 403
    finally:
        server.stop()


def test_in_front_of_an_ollama_they_are_still_ours(tmp_path: Path) -> None:
    server = TextServing(tmp_path, upstream=f"ollama:http://127.0.0.1:{free_port()}")
    try:
        with server.client() as client:
            assert "bident_text_info" in client.get("/metrics").text
            assert client.get("/api/tags").status_code == 503
    finally:
        server.stop()
