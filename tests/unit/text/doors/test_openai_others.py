"""``/v1/embeddings``, ``/v1/models``, ``/v1/rerank``, ``/tokenize``, ``/detokenize``."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from tests.unit.text.doors.scripted_engine import MOMENT, doors


def test_embeddings() -> None:
    stage = doors()
    said = stage.client.post("/v1/embeddings", json={"model": "smol", "input": ["a", "b"], "dimensions": 2}).json()
    assert said["data"] == [
        {"object": "embedding", "index": 0, "embedding": [1.0, 0.5]},
        {"object": "embedding", "index": 1, "embedding": [0.0, -2.0]},
    ]
    assert (said["object"], said["usage"]) == ("list", {"prompt_tokens": 7, "total_tokens": 7})
    assert stage.engine.asked[0].dimensions == 2


def test_base64_is_little_endian_float32() -> None:
    body = {"model": "smol", "input": "a", "encoding_format": "base64"}
    packed = doors().client.post("/v1/embeddings", json=body).json()["data"][0]["embedding"]
    assert struct.unpack("<2f", base64.b64decode(packed)) == (1.0, 0.5)


@pytest.mark.parametrize(
    ("given", "inputs"), [("a", ["a"]), ([1, 2], [[1, 2]]), ([[1], [2]], [[1], [2]]), ([], []), ("", [""])]
)
def test_inputs(given: Any, inputs: Any) -> None:
    stage = doors()
    assert stage.client.post("/v1/embeddings", json={"model": "smol", "input": given}).status_code == 200
    assert [*stage.engine.asked[0].inputs] == inputs


@pytest.mark.parametrize(
    "more",
    [{}, {"input": 1}, {"input": [1.5]}, {"input": ["a", 1]}, {"prompt": "a"}, {"input": "a", "encoding_format": "x"}],
)
def test_embedding_mistakes(more: dict[str, Any]) -> None:
    answer = doors().client.post("/v1/embeddings", json={"model": "smol", **more})
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_models() -> None:
    client = doors().client
    smol = {"id": "smol:latest", "object": "model", "created": int(MOMENT.timestamp()), "owned_by": "library"}
    listed = client.get("/v1/models").json()
    assert (listed["object"], listed["data"][0], listed["data"][1]["owned_by"]) == ("list", smol, "me")
    assert client.get("/v1/models/smol").json() == {**smol, "id": "smol"}
    assert client.get("/v1/models/library/smol:latest").status_code == 200
    answer = client.get("/v1/models/nobody")
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "not_found_error")


def test_rerank() -> None:
    stage = doors()
    body = {"model": "smol", "query": "q", "documents": ["a", {"text": "b"}], "top_n": 2, "return_documents": True}
    said = stage.client.post("/v1/rerank", json=body).json()
    assert said["results"] == [
        {"index": 1, "relevance_score": 0.9, "document": {"text": "b"}},
        {"index": 0, "relevance_score": 0.1, "document": {"text": "a"}},
    ]
    assert (stage.engine.asked[0].documents, stage.engine.asked[0].top) == (["a", "b"], 2)


@pytest.mark.parametrize("more", [{"query": ""}, {"documents": []}, {"documents": [1]}, {"top_n": 0}])
def test_rerank_mistakes(more: dict[str, Any]) -> None:
    body = {"model": "smol", "query": "q", "documents": ["a"], **more}
    answer = doors().client.post("/v1/rerank", json=body)
    assert answer.status_code == 400
    assert next(iter(more)) in answer.json()["error"]["message"]


def test_tokens() -> None:
    stage = doors()
    assert stage.client.post("/tokenize", json={"model": "smol", "content": "a"}).json() == {"tokens": [5, 6]}
    assert stage.client.post("/detokenize", json={"model": "smol", "tokens": [5]}).json() == {"content": "text"}
    assert stage.engine.asked == [("tokenize", "smol", "a", False), ("detokenize", "smol", [5])]
    for path, body in (("/tokenize", {}), ("/tokenize", {"content": 1}), ("/detokenize", {"tokens": ["a"]})):
        assert stage.client.post(path, json={"model": "smol", **body}).status_code == 400


def test_transcriptions_are_refused_plainly() -> None:
    answer = doors().client.post("/v1/audio/transcriptions", content=b"x")
    assert answer.status_code == 501
    assert "not supported" in answer.json()["error"]["message"]
