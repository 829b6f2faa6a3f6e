"""What other servers of text models have been reported for, asked of a real model (Ollama, LiteLLM, their clients)."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from text_serving import TextServing

FEW = {"num_predict": 2, "temperature": 0}


@pytest.fixture
def client(serving: TextServing) -> Iterator[httpx.Client]:
    with serving.client() as client:
        yield client


# ollama#5902, #3839: the start of a long prompt vanishes, and the answer does not say so.
@pytest.mark.parametrize("path", ["/api/generate", "/api/chat", "/v1/chat/completions"])
def test_nothing_is_left_out_without_a_word(client: httpx.Client, path: str) -> None:
    text = "The code word is blue. " + "one two three four five six " * 300
    asked = {"prompt": text} if path == "/api/generate" else {"messages": [{"role": "user", "content": text}]}
    limits = {"options": {**FEW, "num_ctx": 256}, "stream": False}
    client.post("/api/generate", json={"model": "smollm2", "keep_alive": 0})

    answer = client.post(path, json={"model": "smollm2", **asked, **limits})

    assert answer.status_code == 400 or answer.json()["truncated_tokens"] > 1000
    assert "256" in answer.text
    (running,) = (each for each in client.get("/api/ps").json()["models"] if each["name"] == "smollm2:latest")
    assert running["context_length"] == 256


# rig#825, #1758: clients that read in small parts, and expect one whole JSON to a line.
def test_a_stream_read_by_the_byte_is_a_json_to_a_line(client: httpx.Client) -> None:
    asked = {"model": "smollm2", "messages": [{"role": "user", "content": "Hi"}], "options": FEW}
    with client.stream("POST", "/api/chat", json=asked) as answer:
        lines = b"".join(answer.iter_raw(1))

    assert answer.headers["content-type"] == "application/x-ndjson"
    assert lines.endswith(b"}\n")
    *pieces, last = [json.loads(line) for line in lines.splitlines()]
    assert not any(piece["done"] for piece in pieces)
    assert (last["done"], last["done_reason"]) == (True, "length")


def test_openais_stream_ends_with_its_usage_and_done(client: httpx.Client) -> None:
    asked = {"model": "smollm2", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    wanted = {"stream": True, "stream_options": {"include_usage": True}}
    answer = client.post("/v1/chat/completions", json={**asked, **wanted})

    assert answer.headers["content-type"].startswith("text/event-stream")
    *events, usage, done = [event for event in answer.text.split("\n\n") if event]
    assert done == "data: [DONE]"
    assert json.loads(usage.removeprefix("data: "))["choices"] == []
    assert json.loads(events[-1].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"


# litellm#9445, #868: the base URL of one API before the paths of the other; names with and without their tag.
def test_both_apis_are_on_one_port_and_a_mixed_path_is_explained(client: httpx.Client) -> None:
    mixed = client.post("/v1/api/generate", json={"model": "smollm2"})
    assert (mixed.status_code, "did you mean /api/generate" in mixed.text) == (404, True)
    assert {each["id"] for each in client.get("/v1/models").json()["data"]} >= {"smollm2:latest"}
    for name in ("smollm2", "smollm2:latest"):
        assert client.post("/api/show", json={"name": name}).status_code == 200


# ollama#7105, #6435: the field of the other route gives an empty list.
def test_embeddings_of_every_route(client: httpx.Client) -> None:
    def vectors(given: Any) -> list[list[float]]:
        found = client.post("/api/embed", json={"model": "minilm", "input": given}).raise_for_status().json()
        return list(found["embeddings"])

    one, many = vectors("a"), vectors(["a", "b"])
    assert many[0] == pytest.approx(one[0], abs=1e-3)
    assert vectors([]) == vectors("") == []
    assert len(vectors([str(number) for number in range(300)])) == 300
    for path, field in (("/api/embed", "prompt"), ("/api/embeddings", "input"), ("/v1/embeddings", "prompt")):
        wrong = client.post(path, json={"model": "minilm", field: "a"})
        assert (wrong.status_code, "takes" in wrong.text) == (400, True)
    packed = {"model": "minilm", "input": "a", "encoding_format": "base64", "dimensions": 8}
    answer = client.post("/v1/embeddings", json=packed).json()
    assert len(struct.unpack("<8f", base64.b64decode(answer["data"][0]["embedding"]))) == 8
    assert answer["usage"]["prompt_tokens"] > 0


# hermes-agent#43900: options that do nothing, and nobody says so.
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"num_ctx": "4096"}, 'option "num_ctx" must be of type integer'),
        ({"stop": "x"}, 'option "stop" must be of type array'),
        ({"temperature": "hot"}, 'option "temperature" must be of type float32'),
    ],
)
def test_options_of_a_wrong_type_are_named(client: httpx.Client, options: dict[str, Any], problem: str) -> None:
    answer = client.post("/api/generate", json={"model": "smollm2", "prompt": "Hi", "options": options})
    assert (answer.status_code, problem in answer.json()["error"]) == (400, True)


def test_fields_that_openais_clients_send(client: httpx.Client) -> None:
    parts = [{"type": "text", "text": "Hi"}]
    messages = [{"role": "developer", "content": "Be short."}, {"role": "user", "content": parts}]
    asked = {"model": "smollm2", "messages": messages, "max_completion_tokens": 2, "n": 2, "unheard_of": 1}
    answer = client.post("/v1/chat/completions", json={**asked, "logprobs": True, "stop": ["a"], "seed": 1.0}).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert answer["choices"][0]["logprobs"]["content"]
    refused = client.post("/v1/chat/completions", json={**asked, "max_completion_tokens": 0})
    assert refused.status_code == 400
    assert refused.json()["error"].keys() == {"message", "type", "param", "code"}


# A batch smaller than the slots aborts llama.cpp; schemas like these keep one of its threads busy for ever.
def test_no_request_takes_the_model_from_the_others(client: httpx.Client) -> None:
    asked = {"model": "smollm2", "prompt": "Hi", "stream": False}
    client.post("/api/generate", json={"model": "smollm2", "keep_alive": 0})
    assert client.post("/api/generate", json={**asked, "options": {**FEW, "num_batch": 1}}).status_code == 200
    loop = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    for schema in (loop, {"enum": [str(number) for number in range(100_000)]}):
        refused = client.post("/api/generate", json={**asked, "format": schema})
        assert (refused.status_code, "invalid format" in refused.text) == (400, True)
    assert client.post("/api/generate", json={**asked, "options": FEW}).status_code == 200
