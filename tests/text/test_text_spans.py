"""Answers of a real text server as spans: one for each, joined to its client's trace, its tokens counted once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from text_serving import TextServing

from otlp_receiver import OtlpReceiver, Received, read_json

SECRET = "Say the word marzipan."
CLIENT = "b7ad6b7169203331"
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = {"traceparent": f"00-{TRACE}-{CLIENT}-01"}
CHAT = {
    "model": "smollm2",
    "messages": [{"role": "user", "content": SECRET}],
    "max_tokens": 8,
    "temperature": 0,
    "seed": 7,
}

GENERATE = {"model": "smollm2", "prompt": SECRET, "options": {"num_predict": 8}}


@pytest.fixture(scope="module")
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as made:
        yield made


def flags(receiver: OtlpReceiver, *more: str) -> tuple[str, ...]:
    mode = ("mode=opentelemetry", f"opentelemetry,url={receiver.url}", "opentelemetry,bsp_schedule_delay=20", *more)
    return tuple(f"--trace-config={option}" for option in mode)


@pytest.fixture(scope="module")
def traced(receiver: OtlpReceiver, smollm2_weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("spans")
    (folder / "smollm2.gguf").symlink_to(smollm2_weights)
    server = TextServing(folder, *flags(receiver), files=(folder / "smollm2.gguf",))
    try:
        with server.client() as client:
            yield client
    finally:
        server.stop()
        assert "Traceback" not in server.said()


@pytest.fixture(autouse=True)
def none_left(receiver: OtlpReceiver) -> None:
    receiver.spans.clear()


def next_span(receiver: OtlpReceiver) -> Received:
    """The only one that has come since the last."""
    receiver.wait(lambda: receiver.spans)
    (span,) = receiver.spans
    receiver.spans.clear()
    return span


def test_a_generation(traced: httpx.Client, receiver: OtlpReceiver) -> None:
    answer = traced.post("/v1/chat/completions", json=CHAT).raise_for_status().json()
    span = next_span(receiver)

    assert (span.name, span.parent_id, span.failed) == ("chat smollm2", "", False)
    said = span.attributes
    assert said["gen_ai.operation.name"] == "chat"
    assert said["gen_ai.request.model"] == said["gen_ai.response.model"] == "smollm2"
    assert said["langfuse.observation.type"] == "generation"
    assert said["gen_ai.usage.input_tokens"] == answer["usage"]["prompt_tokens"]
    assert said["gen_ai.usage.output_tokens"] == answer["usage"]["completion_tokens"] == 8
    assert (said["gen_ai.request.max_tokens"], said["gen_ai.request.seed"]) == (8, 7)
    assert said["gen_ai.request.temperature"] == 0
    assert said["gen_ai.response.finish_reasons"] == ["length"]
    first = datetime.fromisoformat(said["langfuse.observation.completion_start_time"].replace("Z", "+00:00"))
    assert span.start_ns / 1e9 < first.timestamp() <= span.end_ns / 1e9
    assert span.resource["service.name"] == "bident-text"


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions", "/v1/messages", "/v1/responses"])
def test_within_its_clients_trace_the_client_counts(traced: httpx.Client, receiver: OtlpReceiver, path: str) -> None:
    asked = {**CHAT, "input": SECRET, "max_output_tokens": 8, "options": {"num_predict": 8}}
    with traced.stream("POST", path, json={**asked, "stream": True}, headers=PARENT) as answer:
        assert answer.status_code == 200, answer.read()
        answer.read()
    span = next_span(receiver)

    assert (span.trace_id, span.parent_id) == (TRACE, CLIENT)
    assert span.attributes["langfuse.observation.type"] == "span"
    assert not any(name.startswith("gen_ai.usage") for name in span.attributes)
    assert span.attributes["langfuse.observation.metadata.output_tokens"] > 0
    assert "langfuse.observation.completion_start_time" in span.attributes


def test_text_does_not_leave_unasked(traced: httpx.Client, receiver: OtlpReceiver) -> None:
    answer = traced.post("/api/generate", json={**GENERATE, "stream": False}).json()
    assert next_span(receiver).name == "text_completion smollm2"
    refused = traced.post("/api/chat", json={"model": "smollm2", "messages": CHAT["messages"], "options": {"stop": 5}})
    assert refused.status_code == 400
    assert next_span(receiver).attributes["error.type"] == "invalid_arg"
    failed = traced.post("/v1/chat/completions", json={**CHAT, "model": "marzipan-model"})
    assert failed.status_code == 404
    span = next_span(receiver)

    assert (span.failed, span.message, span.attributes["error.type"]) == (True, "", "not_found")
    assert not receiver.says("the word marzipan")
    assert not receiver.says(answer["response"][:40])


def test_a_client_that_goes_is_a_failure_of_its_own(traced: httpx.Client, receiver: OtlpReceiver) -> None:
    with traced.stream("POST", "/api/generate", json={"model": "smollm2", "prompt": "Count to 1000: 1 2 3"}) as answer:
        next(answer.iter_bytes())
    span = next_span(receiver)

    assert (span.failed, span.attributes["error.type"]) == (True, "cancelled")
    assert "gen_ai.usage.output_tokens" not in span.attributes


def test_loading_is_no_answer(traced: httpx.Client, receiver: OtlpReceiver) -> None:
    traced.post("/api/generate", json={"model": "smollm2"}).raise_for_status()
    traced.post("/v1/chat/completions", json=CHAT).raise_for_status()

    assert next_span(receiver).name == "chat smollm2"


def test_text_that_is_asked_for_and_usage_that_always_counts(
    receiver: OtlpReceiver, smollm2_weights: Path, tmp_path: Path
) -> None:
    (tmp_path / "smollm2.gguf").symlink_to(smollm2_weights)
    more = (*flags(receiver), "--trace-text=true", "--trace-usage=always")
    server = TextServing(tmp_path, *more, files=(tmp_path / "smollm2.gguf",))
    try:
        with server.client() as client:
            answer = client.post("/v1/chat/completions", json=CHAT, headers=PARENT).raise_for_status().json()
    finally:
        server.stop()
    span = next_span(receiver)

    assert (span.trace_id, span.attributes["langfuse.observation.type"]) == (TRACE, "generation")
    assert span.attributes["gen_ai.usage.output_tokens"] == answer["usage"]["completion_tokens"]
    (asked,) = read_json(span, "gen_ai.input.messages")
    assert asked == {"role": "user", "parts": [{"type": "text", "content": SECRET}]}
    (given,) = read_json(span, "gen_ai.output.messages")
    said = answer["choices"][0]["message"]["content"]
    assert given == {"role": "assistant", "parts": [{"type": "text", "content": said}], "finish_reason": "length"}


def test_many_at_once_keep_to_their_own_traces(traced: httpx.Client, receiver: OtlpReceiver) -> None:
    async def ask() -> None:
        async with httpx.AsyncClient(base_url=traced.base_url, timeout=60.0, trust_env=False) as client:
            names = [f"{number:032x}" for number in range(1, 9)]
            heads = [{"traceparent": f"00-{name}-{CLIENT}-01"} for name in names]
            await asyncio.gather(*(client.post("/v1/chat/completions", json=CHAT, headers=head) for head in heads))

    asyncio.run(ask())
    receiver.wait(lambda: len(receiver.spans) == 8, "a span for each")
    assert sorted(int(span.trace_id, 16) for span in receiver.spans) == [*range(1, 9)]
    receiver.spans.clear()
