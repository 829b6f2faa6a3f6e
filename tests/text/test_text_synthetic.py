"""Reranking, adapters and pictures, end to end with synthetic weights: that each path is taken, not what it finds."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image
from synthetic_models import adapter, projector, reranker
from text_serving import TextServing

FEW = {"num_predict": 4, "temperature": 0, "seed": 1}
QUESTION = "What is this?"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, smollm2_weights: Path) -> Iterator[httpx.Client]:
    """Of a server with ``smollm2``; ``seer``, the same with eyes; ``ranker``."""
    folder = tmp_path_factory.mktemp("synthetic")
    models = folder / "models"
    models.mkdir()
    for name in ("smollm2", "seer"):
        (models / f"{name}.gguf").symlink_to(smollm2_weights)
    projector(models / "mmproj-seer.gguf")
    reranker(models / "ranker.gguf")
    server = TextServing(folder, files=(models,))
    with server.client() as client:
        yield client
    server.stop()


def post(client: httpx.Client, path: str, status: int = 200, **body: Any) -> dict[str, Any]:
    answer = client.post(path, json=body)
    assert answer.status_code == status, answer.text
    said: dict[str, Any] = answer.json()
    return said


# ---------------------------------------------------------------------- reranking


def test_documents_are_ranked(client: httpx.Client) -> None:
    documents = ["a cat sits", "the market fell", "a cat sits"]
    ranked = post(client, "/v1/rerank", model="ranker", query="where is a cat", documents=documents)["results"]
    scores = {each["index"]: each["relevance_score"] for each in ranked}
    assert sorted(scores) == [0, 1, 2]
    assert [each["relevance_score"] for each in ranked] == sorted(scores.values(), reverse=True)
    assert scores[0] == pytest.approx(scores[2], abs=1e-4)
    assert scores[0] != pytest.approx(scores[1], abs=1e-4)
    best = {"top_n": 1, "return_documents": True}
    (first,) = post(client, "/v1/rerank", model="ranker", query="where is a cat", documents=documents, **best)[
        "results"
    ]
    assert (first["index"], first["document"]["text"]) == (ranked[0]["index"], documents[ranked[0]["index"]])


def test_a_model_is_asked_only_for_what_it_can(client: httpx.Client) -> None:
    (listed,) = (each for each in client.get("/api/tags").json()["models"] if each["name"] == "ranker:latest")
    assert listed["capabilities"] == ["rerank"]
    assert "does not support rerank" in str(
        post(client, "/v1/rerank", 400, model="smollm2", query="q", documents=["d"])
    )
    assert "does not support embeddings" in str(post(client, "/api/embed", 400, model="ranker", input="a"))
    assert "does not support generate" in str(post(client, "/api/generate", 400, model="ranker", prompt="a"))


def test_a_pair_that_is_too_long_is_refused(client: httpx.Client) -> None:
    refused = post(client, "/v1/rerank", 400, model="ranker", query="a " * 100, documents=["b", "b " * 100])
    assert "query and document 1 have 200 tokens together, 124 are the most" in refused["error"]["message"]
    assert post(client, "/v1/rerank", model="ranker", query="a " * 100, documents=["b " * 24])["results"]


# ---------------------------------------------------------------------- adapters


def chances(client: httpx.Client, model: str) -> list[float]:
    """How likely the first tokens of an answer are: the finest sight of a model's weights that there is."""
    body = {"prompt": "Once upon a time", "raw": True, "stream": False, "logprobs": True, "options": FEW}
    return [each["logprob"] for each in post(client, "/api/generate", model=model, **body)["logprobs"]]


def test_an_adapter_changes_the_model_that_it_is_created_with(client: httpx.Client, tmp_path: Path) -> None:
    made = {}
    for name, strength in (("bent", 0.2), ("straight", 0.0)):
        content = adapter(tmp_path / f"{name}.gguf", strength).read_bytes()
        made[name] = "sha256:" + hashlib.sha256(content).hexdigest()
        client.post(f"/api/blobs/{made[name]}", content=content).raise_for_status()
        files = {"adapter.gguf": made[name]}
        post(client, "/api/create", model=name, **{"from": "smollm2", "adapters": files, "stream": False})
    plain = chances(client, "smollm2")
    assert chances(client, "straight") == pytest.approx(plain, abs=1e-3)
    assert chances(client, "bent") != pytest.approx(plain, abs=1e-2)
    assert "ADAPTER " in post(client, "/api/show", model="bent")["modelfile"]


# ---------------------------------------------------------------------- pictures


def picture(red: int, green: int, blue: int) -> str:
    """A PNG of one colour, in Base64."""
    file = io.BytesIO()
    Image.new("RGB", (64, 64), (red, green, blue)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def seen(client: httpx.Client, *images: str) -> tuple[int, list[float]]:
    """The tokens of a conversation with ``images``, and how likely those of its answer are."""
    messages = [{"role": "user", "content": QUESTION, "images": [*images]}]
    body = {"messages": messages, "stream": False, "logprobs": True, "options": FEW}
    answer = post(client, "/api/chat", model="seer", **body)
    return answer["prompt_eval_count"], [each["logprob"] for each in answer["logprobs"]]


def test_a_picture_is_seen(client: httpx.Client) -> None:
    blind, red, blue = seen(client), seen(client, picture(255, 0, 0)), seen(client, picture(0, 0, 255))
    assert red[0] == blue[0] == blind[0] + 16  # patches of 16 by 16 pixels
    assert red[1] != pytest.approx(blue[1], abs=1e-3)
    assert seen(client, picture(255, 0, 0), picture(0, 0, 255))[0] == blind[0] + 32


def test_every_route_takes_pictures(client: httpx.Client) -> None:
    red = picture(255, 0, 0)
    tokens, _ = seen(client, red)
    body = {"prompt": QUESTION, "images": [red], "stream": False, "options": FEW}
    assert post(client, "/api/generate", model="seer", **body)["prompt_eval_count"] == tokens
    parts = [
        {"type": "text", "text": QUESTION},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{red}"}},
    ]
    chat = {"messages": [{"role": "user", "content": parts}], "max_tokens": 4}
    assert post(client, "/v1/chat/completions", model="seer", **chat)["usage"]["prompt_tokens"] == tokens
    source = {"type": "base64", "media_type": "image/png", "data": red}
    blocks = [{"type": "text", "text": QUESTION}, {"type": "image", "source": source}]
    message = {"messages": [{"role": "user", "content": blocks}], "max_tokens": 4}
    usage = post(client, "/v1/messages", model="seer", **message)["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == tokens


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/a.png", "file:///etc/passwd", "data:image/png;base64,AAAA"])
def test_pictures_that_are_elsewhere_or_none_are_refused(client: httpx.Client, url: str) -> None:
    parts = [{"type": "image_url", "image_url": {"url": url}}]
    refused = post(client, "/v1/chat/completions", 400, model="seer", messages=[{"role": "user", "content": parts}])
    assert refused["error"]["type"] == "invalid_request_error"
    assert seen(client)[0]
