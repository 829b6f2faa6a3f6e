"""Ollama's endpoints about models, and what all paths have in common."""

from __future__ import annotations

import json
import time

import pytest

from bident.errors import Code, ServeError
from bident.text.answering.asked import RemoteModel
from bident.text.names import ModelName
from tests.unit.text.doors.scripted_engine import ScriptedEngine, doors, in_parts

DETAILS = {
    "parent_model": "",
    "format": "gguf",
    "family": "llama",
    "families": ["llama"],
    "parameter_size": "1M",
    "quantization_level": "Q4_1",
    "context_length": 8192,
    "embedding_length": 576,
}


def test_root_version_status() -> None:
    client = doors().client
    assert client.get("/").text == "Ollama is running"
    assert client.head("/").status_code == 200
    version = client.get("/api/version").json()
    assert version["version"].count(".") == 2
    assert "bident" in version  # what tells it from a real Ollama
    assert client.head("/api/version").status_code == client.head("/api/tags").status_code == 200
    assert client.get("/api/status").json() == {"cloud": {"disabled": True, "source": "none"}}


def test_tags() -> None:
    first, broken = doors().client.get("/api/tags").json()["models"]
    assert first == {
        "name": "smol:latest",
        "model": "smol:latest",
        "modified_at": "2026-11-30T16:03:12.500000000Z",
        "size": 5,
        "digest": "d" * 64,
        "details": DETAILS,
        "capabilities": ["completion"],
    }
    assert (broken["name"], broken["fault"]) == ("me/broken:latest", "no weights")


def test_models_of_other_servers_are_listed_and_shown_as_such() -> None:
    client = doors(ScriptedEngine(elsewhere=[RemoteModel("far", "https://other/v1")])).client
    *_, listed = client.get("/api/tags").json()["models"]
    assert (listed["name"], listed["remote_host"], listed["size"]) == ("far", "https://other/v1", 0)
    shown = client.post("/api/show", json={"model": "far"}).json()
    assert (shown["remote_model"], shown["capabilities"]) == ("far", ["completion"])
    *_, openai = client.get("/v1/models").json()["data"]
    assert openai == {"id": "far", "object": "model", "created": 0, "owned_by": "https://other/v1"}
    assert client.get("/v1/models/far").json() == openai


def test_ps_has_those_that_stay_longest_first() -> None:
    stays, leaves = doors().client.get("/api/ps").json()["models"]
    assert (stays["name"], stays["expires_at"][:4]) == ("stays:latest", "2318")
    assert (leaves["name"], leaves["expires_at"]) == ("smol:latest", "2026-11-30T16:03:12.500000000Z")
    assert (leaves["size"], leaves["size_vram"], leaves["context_length"]) == (9, 0, 4096)


@pytest.mark.parametrize("name", ["model", "name"])
def test_show(name: str) -> None:
    stage = doors()
    shown = stage.client.post("/api/show", json={name: "smol", "verbose": True}).json()
    assert shown["details"] == DETAILS
    assert (shown["modelfile"], shown["template"], shown["model_info"]) == ("FROM x", "{{ .Prompt }}", {"a": 1})
    assert (shown["capabilities"], shown["modified_at"]) == (["completion"], "2026-11-30T16:03:12.500000000Z")
    assert stage.engine.library.asked == [("show", "smol", True)]


def test_show_refuses() -> None:
    client = doors().client
    assert client.post("/api/show", json={}).json() == {"error": "model is required"}
    answer = client.post("/api/show", json={"model": "nobody"})
    assert (answer.status_code, answer.json()) == (404, {"error": "model 'nobody' not found"})


def test_copy_and_delete_answer_nothing() -> None:
    stage = doors()
    answer = stage.client.post("/api/copy", json={"source": "smol", "destination": "b"})
    assert (answer.status_code, answer.content) == (200, b"")
    answer = stage.client.request("DELETE", "/api/delete", json={"name": "smol"})
    assert (answer.status_code, answer.content) == (200, b"")
    assert stage.engine.library.asked == [("copy", "smol", "b"), ("delete", "smol")]
    assert stage.engine.residency.unloaded == ["smol:latest"]
    assert stage.client.request("DELETE", "/api/delete", json={"model": "nobody"}).status_code == 404
    assert stage.client.post("/api/copy", json={"source": "smol"}).json() == {"error": "destination is required"}


def test_create() -> None:
    stage = doors()
    body = {
        "model": "mine",
        "from": "smol",
        "files": {"a.gguf": "sha256:1"},
        "system": "s",
        "license": "MIT",
        "parameters": {"stop": ["a"]},
        "messages": [{"role": "user", "content": "hi"}],
    }
    answer = stage.client.post("/api/create", json=body)
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line) for line in answer.text.splitlines()] == stage.engine.library.statuses
    made = stage.engine.library.asked[0][1]
    assert (made.name, made.base, made.files) == (ModelName.parse("mine"), "smol", {"a.gguf": "sha256:1"})
    assert (made.system, made.licenses, made.parameters) == ("s", ["MIT"], {"stop": ["a"]})
    assert stage.client.post("/api/create", json={**body, "stream": False}).json() == {"status": "success"}


@pytest.mark.parametrize(
    "body",
    [
        {"from": 1},
        {"files": []},
        {"files": {"a": 1}},
        {"license": {}},
        {"parameters": "x"},
        {"messages": [{}]},
        {"modelfile": "FROM x"},
        {"model": "../x"},
        {"remote_host": "x"},
    ],
)
def test_create_refuses(body: dict[str, object]) -> None:
    stage = doors()
    answer = stage.client.post("/api/create", json={"model": "mine", **body})
    assert answer.status_code == 400
    assert next(iter(body)).rstrip("s") in answer.json()["error"]
    assert not stage.engine.library.asked


def test_pull_and_push() -> None:
    stage = doors()
    assert stage.client.post("/api/pull", json={"name": "smol", "stream": False}).json() == {"status": "success"}
    stage.client.post("/api/pull", json={"model": "mine", "from": "hf:a/b", "insecure": True})
    stage.client.post("/api/push", json={"model": "me/smol"})
    assert stage.engine.library.asked == [
        ("pull", "smol", None, False),
        ("pull", "hf:a/b", "mine", True),
        ("push", "me/smol", False),
    ]


def test_a_pull_that_fails_says_so_by_status_or_in_its_last_line() -> None:
    stage = doors()
    failure = ServeError(Code.NOT_FOUND, "pull model manifest: file does not exist")
    stage.engine.library.statuses = [failure]
    answer = stage.client.post("/api/pull", json={"model": "x"})
    assert (answer.status_code, answer.json()) == (404, {"error": failure.message})
    stage.engine.library.statuses = [{"status": "pulling manifest"}, failure]
    answer = stage.client.post("/api/pull", json={"model": "x"})
    assert answer.status_code == 200
    assert json.loads(answer.text.splitlines()[-1]) == {"error": failure.message}


def test_blobs() -> None:
    stage = doors(max_body_bytes=10)
    assert stage.client.head("/api/blobs/sha256:1").status_code == 200
    assert stage.client.head("/api/blobs/sha256:2").status_code == 404
    assert stage.client.post("/api/blobs/sha256:1", content=b"x").status_code == 200
    large = b"x" * 1000  # uploads are no bodies to be held: no limit
    assert stage.client.post("/api/blobs/sha256:2", content=large).status_code == 201
    assert stage.engine.library.received == large


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/me"),
        ("POST", "/api/signout"),
        ("DELETE", "/api/user/keys/abc"),
        ("POST", "/api/experimental/web_search"),
    ],
)
def test_there_is_no_cloud(method: str, path: str) -> None:
    answer = doors().client.request(method, path)
    assert answer.status_code == 403
    assert "no cloud" in answer.json()["error"]


def test_unknown_paths_and_wrong_verbs() -> None:
    client = doors().client
    answer = client.get("/nothing")
    assert (answer.status_code, answer.text) == (404, "404 page not found")
    assert client.get("/api/chat").status_code == 405
    assert client.post("/api/tags").status_code == 405
    answer = client.post("/v1/api/generate", json={})
    assert answer.status_code == 404
    assert "did you mean /api/generate?" in answer.json()["error"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "missing request body"),
        (b" \n", "missing request body"),
        (b"{", "invalid JSON"),
        (b"\xff\xfe", "invalid JSON"),
        (b'{"model": NaN}', "invalid JSON"),
        (b"[" * 100_000, "invalid JSON"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "invalid JSON"),
        (b"[]", "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b'{"model": "smol"} x', "invalid JSON"),
    ],
)
@pytest.mark.parametrize("path", ["/api/chat", "/api/generate", "/api/show", "/v1/chat/completions", "/v1/messages"])
def test_bodies_that_are_none(path: str, body: bytes, words: str) -> None:
    answer = doors().client.post(path, content=body)
    assert answer.status_code == 400
    assert words in answer.text


def test_half_characters_are_read_as_go_reads_them() -> None:
    stage = doors()
    body = b'{"model": "smol", "prompt": "a\\ud83d b \\ud83d\\ude00"}'
    assert stage.client.post("/api/generate", content=body).status_code == 200
    assert stage.engine.asked[0].prompt == "a\ufffd b \U0001f600"


def test_half_characters_in_a_large_body_are_an_error_at_once() -> None:
    stage = doors(max_body_bytes=1 << 24)
    body = b'{"model": "smol", "prompt": "a\\ud83d", "messages": [' + b"{}," * (2 << 20) + b"{}]}"
    began = time.process_time()
    answer = stage.client.post("/api/generate", content=body)
    assert (answer.status_code, stage.engine.asked) == (400, [])
    assert "no low surrogate" in answer.json()["error"]
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("split", [1, 4])
def test_conversations_of_too_many_parts_are_an_error_at_once(path: str, split: int) -> None:
    stage = doors()
    parts: list[object] = [{"type": "text", "text": "x"}] * (20_000 // split)
    messages = [{"role": "user", "content": parts}] * split
    if path == "/api/chat":
        messages = [{"role": "user", "content": "x"}] * 20_000
    body = {"model": "smol", "max_tokens": 1, "messages": messages}
    answer = stage.client.post(path, json=body)
    assert (answer.status_code, stage.engine.asked) == (400, [])
    assert "objects or more, 16384 are the most" in answer.text


@pytest.mark.parametrize("name", ["", "options", "logit_bias"])
def test_objects_of_too_many_fields_are_an_error_at_once(name: str) -> None:
    stage = doors()
    many = {str(number): 1 for number in range(20_000)}
    body = {"model": "smol", "messages": [{"role": "user", "content": "x"}]} | ({name: many} if name else many)
    answer = stage.client.post("/v1/chat/completions", json=body)
    assert (answer.status_code, stage.engine.asked) == (400, [])
    assert "fields, 16384 are the most" in answer.json()["error"]["message"]


def test_large_bodies_are_refused_in_each_shape() -> None:
    client = doors(max_body_bytes=100).client
    large = {"model": "smol", "prompt": "x" * 200}
    answer = client.post("/api/generate", json=large)
    assert answer.status_code == 413
    assert "100" in answer.json()["error"]
    assert client.post("/v1/completions", json=large).json()["error"]["type"] == "invalid_request_error"
    assert client.post("/v1/messages", json=large).json()["error"]["type"] == "request_too_large"
    assert client.post("/api/generate", content=in_parts(b"x" * 60, b"x" * 60)).status_code == 413
