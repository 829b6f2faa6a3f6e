"""What Ollama's API document (``docs/api.md``) shows, asked with curl of a real model: a test for each of its examples.

The requests say the same in other words, and are kept short; the answers must have the members that the document names.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.text.gguf_edits import with_template
from tests.text.sample_models import smollm2
from tests.text.text_serving import TOOLED, TextServing

pytestmark = pytest.mark.timeout(300)

FEW = {"num_predict": 8, "temperature": 0}
FIGURES = {
    "total_duration",
    "load_duration",
    "prompt_eval_count",
    "prompt_eval_duration",
    "eval_count",
    "eval_duration",
}
HEAD = {"model", "created_at", "done"}
ABOUT_BIRD = {
    "type": "object",
    "properties": {"legs": {"type": "integer", "maximum": 99}, "flies": {"type": "boolean"}},
    "required": ["legs", "flies"],
}
FORECAST = {
    "type": "function",
    "function": {
        "name": "forecast",
        "description": "What the weather will be somewhere",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
            "required": ["place", "unit"],
        },
    },
}
FILLED_IN = "<|im_start|>{{ .Prompt }}<gap>{{ .Suffix }}<|im_end|>"
"""A template with a place for a suffix makes any model one that can insert."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TextServing]:
    folder = tmp_path_factory.mktemp("serving")
    weights = folder / "smollm2.gguf"
    weights.symlink_to(smollm2())
    serving = TextServing(folder, files=(weights,))
    try:
        for name, template in (("tooled", TOOLED), ("filler", FILLED_IN)):
            with serving.client() as client:
                body = {"model": name, "from": "smollm2", "template": template, "stream": False}
                client.post("/api/create", json=body).raise_for_status()
        yield serving
    finally:
        serving.stop()


def curl(server: TextServing, path: str, *flags: str, status: int = 200) -> str:
    """The body of the answer, which must have ``status``."""
    command = ["curl", "--silent", "--write-out", "\n%{http_code}", *flags, server.url + path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    body, _, code = done.stdout.rpartition("\n")
    assert int(code) == status, body
    return body


def asked(server: TextServing, path: str, status: int = 200, **body: Any) -> list[dict[str, Any]]:
    """The JSON objects, one to a line, of the answer to ``body``."""
    return [json.loads(line) for line in curl(server, path, "-d", json.dumps(body), status=status).splitlines()]


def answered(server: TextServing, path: str, **body: Any) -> dict[str, Any]:
    """The one object of an answer that is not streamed, with the members that all have."""
    (answer,) = asked(server, path, **body, stream=False)
    assert answer.keys() >= HEAD | FIGURES | {"done_reason"}
    assert answer["done"] is True
    assert all(isinstance(answer[name], int) for name in FIGURES)
    return answer


@pytest.fixture(scope="module")
def pulled(server: TextServing) -> list[dict[str, Any]]:
    """What was said while ``minilm`` was pulled, which embeds."""
    return asked(server, "/api/pull", model="minilm")


def check_stream(parts: list[dict[str, Any]], said: str) -> None:
    *pieces, last = parts
    assert pieces
    assert all(piece.keys() == HEAD | {said} and piece["done"] is False for piece in pieces)
    assert last.keys() >= HEAD | FIGURES
    assert last["done"] is True


# ---------------------------------------------------------------------- a completion


def test_generate_in_a_stream(server: TextServing) -> None:
    parts = asked(server, "/api/generate", model="smollm2", prompt="Why do birds sing?", options=FEW)
    check_stream(parts, "response")
    assert "".join(part["response"] for part in parts)
    assert all(isinstance(token, int) for token in parts[-1]["context"])


def test_generate_in_one_piece(server: TextServing) -> None:
    answer = answered(server, "/api/generate", model="smollm2", prompt="Why do birds sing?", options=FEW)
    assert answer["response"]
    assert answer["context"]


def test_generate_before_a_suffix(server: TextServing) -> None:
    code = {"prompt": "def lowest(a, b):", "suffix": "    return low"}
    assert answered(server, "/api/generate", model="filler", **code, options=FEW)["response"]
    (refused,) = asked(server, "/api/generate", 400, model="smollm2", **code, stream=False)
    assert "does not support insert" in refused["error"]


@pytest.mark.parametrize("format", ["json", ABOUT_BIRD])
def test_generate_by_a_format(server: TextServing, format: Any) -> None:
    prompt = "How many legs has a sparrow, and does it fly? Answer with a JSON object."
    options = {"temperature": 0, "num_predict": 60}
    answer = answered(server, "/api/generate", model="smollm2", prompt=prompt, format=format, options=options)
    assert answer["response"].lstrip().startswith("{")
    if format == ABOUT_BIRD:
        assert json.loads(answer["response"]).keys() == {"legs", "flies"}


def test_generate_with_an_image_needs_a_model_that_sees(server: TextServing) -> None:
    image = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    body = {"model": "smollm2", "prompt": "What is this?", "stream": False, "images": [image]}
    (refused,) = asked(server, "/api/generate", 400, **body)
    assert "does not support vision" in refused["error"]


def test_generate_from_a_raw_prompt(server: TextServing) -> None:
    answer = answered(server, "/api/generate", model="smollm2", prompt="Birds sing", raw=True, options=FEW)
    assert answer["response"]
    assert "context" not in answer


def test_generate_the_same_again(server: TextServing) -> None:
    options = {"seed": 7, "num_predict": 8}
    same = [
        answered(server, "/api/generate", model="smollm2", prompt="Name a bird", options=options)["response"]
        for _ in range(2)
    ]
    assert same[0] == same[1]


def test_generate_with_every_option(server: TextServing) -> None:
    options = {
        **{"num_keep": 3, "seed": 5, "num_predict": 6, "top_k": 10, "top_p": 0.8, "min_p": 0.1, "typical_p": 0.9},
        **{"repeat_last_n": 20, "temperature": 0.5, "repeat_penalty": 1.1, "presence_penalty": 0.5},
        **{"frequency_penalty": 0.5, "mirostat": 1, "mirostat_tau": 0.5, "mirostat_eta": 0.5},
        **{"penalize_newline": True, "stop": ["###", "bird:"], "numa": False, "num_ctx": 1024, "num_batch": 4},
        **{"num_gpu": 1, "main_gpu": 0, "low_vram": False, "vocab_only": False, "use_mmap": True, "use_mlock": False},
        **{"num_thread": 2},
    }
    assert answered(server, "/api/generate", model="smollm2", prompt="Name a bird", options=options)["eval_count"] <= 6


@pytest.mark.parametrize("path", ["/api/generate", "/api/chat"])
def test_load_and_unload(server: TextServing, path: str) -> None:
    nothing: dict[str, Any] = {"messages": []} if path == "/api/chat" else {}
    (loaded,) = asked(server, path, model="smollm2", **nothing)
    (unloaded,) = asked(server, path, model="smollm2", keep_alive=0, **nothing)
    said = {"message": {"role": "assistant", "content": ""}} if path == "/api/chat" else {"response": ""}
    for answer, reason in ((loaded, "load"), (unloaded, "unload")):
        assert answer.keys() == HEAD | said.keys() | {"done_reason"}
        assert answer | said | {"done": True, "done_reason": reason} == answer


# ---------------------------------------------------------------------- a conversation


def test_chat_in_a_stream(server: TextServing) -> None:
    messages = [{"role": "user", "content": "Why do birds sing?"}]
    parts = asked(server, "/api/chat", model="smollm2", messages=messages, options=FEW)
    check_stream(parts, "message")
    assert {part["message"]["role"] for part in parts} == {"assistant"}
    assert "".join(part["message"]["content"] for part in parts)


def test_chat_with_a_history_is_the_same_in_one_piece(server: TextServing) -> None:
    messages = [
        {"role": "user", "content": "Why do birds sing?"},
        {"role": "assistant", "content": "To be heard."},
        {"role": "user", "content": "By whom?"},
    ]
    options = {**FEW, "seed": 101}
    body = {"model": "smollm2", "messages": messages, "options": options}
    whole = answered(server, "/api/chat", **body)["message"]["content"]
    assert whole == "".join(part["message"]["content"] for part in asked(server, "/api/chat", **body))


def test_chat_by_a_schema(server: TextServing) -> None:
    messages = [{"role": "user", "content": "How many legs has a sparrow, and does it fly? Answer in JSON."}]
    options = {"temperature": 0, "num_predict": 200}
    answer = answered(server, "/api/chat", model="smollm2", messages=messages, format=ABOUT_BIRD, options=options)
    assert json.loads(answer["message"]["content"]).keys() == {"legs", "flies"}


def test_chat_with_tools(server: TextServing) -> None:
    """A model of this size seldom calls by itself: what is tested is that a conversation with a call in it goes on."""
    call = {"function": {"name": "forecast", "arguments": {"place": "Oslo", "unit": "celsius"}}}
    messages = [
        {"role": "user", "content": "What will the weather be in Oslo?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_name": "forecast", "content": "11 degrees"},
    ]
    body = {"messages": messages, "tools": [FORECAST], "options": FEW}
    assert answered(server, "/api/chat", model="tooled", **body)["message"]["role"] == "assistant"
    (refused,) = asked(server, "/api/chat", 400, model="smollm2", **body)
    assert refused["error"].startswith("smollm2:latest does not support tools")


# ---------------------------------------------------------------------- models


def test_create_copy_show_and_delete(server: TextServing) -> None:
    *_, last = asked(server, "/api/create", model="parrot", **{"from": "smollm2", "system": "You are a parrot."})
    assert last == {"status": "success"}
    assert curl(server, "/api/copy", "-d", json.dumps({"source": "parrot", "destination": "parrot-too"})) == ""
    (card,) = asked(server, "/api/show", model="parrot-too")
    assert card.keys() >= {"modelfile", "template", "details", "model_info", "capabilities"}
    assert "You are a parrot." in card["modelfile"]
    assert card["details"].keys() >= {"parent_model", "format", "family", "families", "parameter_size"}
    assert card["model_info"]["llama.context_length"] == 8192
    assert card["model_info"]["tokenizer.ggml.merges"] == []
    (whole,) = asked(server, "/api/show", model="parrot-too", verbose=True)
    assert len(whole["model_info"]["tokenizer.ggml.merges"]) > 1000
    for name in ("parrot", "parrot-too"):
        assert curl(server, "/api/delete", "-X", "DELETE", "-d", json.dumps({"model": name})) == ""
    curl(server, "/api/delete", "-X", "DELETE", "-d", '{"model": "parrot"}', status=404)
    curl(server, "/api/copy", "-d", '{"source": "parrot", "destination": "other"}', status=404)


def test_create_by_a_modelfile_in_one_field_says_what_is_sent_instead(server: TextServing) -> None:
    (refused,) = asked(server, "/api/create", 400, model="parrot", modelfile="FROM smollm2\nSYSTEM You are a parrot.")
    assert "'from'" in refused["error"]


def test_create_of_an_uploaded_file(server: TextServing, tmp_path: Path) -> None:
    weights = with_template(smollm2(), tmp_path / "other.gguf", "{{ messages[0]['content'] }}")
    digest = "sha256:" + hashlib.sha256(weights.read_bytes()).hexdigest()
    curl(server, f"/api/blobs/{digest}", "-I", status=404)
    curl(server, f"/api/blobs/{digest}", "-T", str(weights), "-X", "POST", status=201)
    curl(server, f"/api/blobs/{digest}", "-I")
    curl(server, f"/api/blobs/sha256:{'0' * 64}", "-T", str(Path(__file__)), "-X", "POST", status=400)
    *_, last = asked(server, "/api/create", model="uploaded", files={"weights.gguf": digest})
    assert last == {"status": "success"}
    curl(server, "/api/delete", "-X", "DELETE", "-d", '{"model": "uploaded"}')


def test_quantize_says_what_it_cannot(server: TextServing) -> None:
    body = {"model": "smaller", "from": "smollm2", "quantize": "q4_K_M", "stream": False}
    (refused,) = asked(server, "/api/create", 400, **body)
    assert "quantize" in refused["error"]


def test_list_and_list_running(server: TextServing) -> None:
    (listed, *_) = json.loads(curl(server, "/api/tags"))["models"]
    assert listed.keys() >= {"name", "modified_at", "size", "digest", "details"}
    asked(server, "/api/generate", model="smollm2")
    (running,) = json.loads(curl(server, "/api/ps"))["models"]
    assert running.keys() >= {"name", "model", "size", "digest", "details", "expires_at", "size_vram"}
    assert json.loads(curl(server, "/api/version")).keys() >= {"version"}


def test_pull_and_push(server: TextServing, pulled: list[dict[str, Any]]) -> None:
    first, *_, last = pulled
    assert (first["status"], last["status"]) == ("pulling manifest", "success")
    curl(server, "/api/copy", "-d", '{"source": "minilm", "destination": "127.0.0.1:9/team/minilm"}')
    *_, failed = asked(server, "/api/push", model="127.0.0.1:9/team/minilm")
    assert "127.0.0.1 cannot be reached" in failed["error"]


# ---------------------------------------------------------------------- embeddings


@pytest.mark.parametrize("texts", ["Why do birds sing?", ["Why do birds sing?", "Why do frogs croak?"]])
@pytest.mark.usefixtures("pulled")
def test_embed(server: TextServing, texts: Any) -> None:
    (answer,) = asked(server, "/api/embed", model="minilm", input=texts)
    assert answer.keys() >= {"model", "embeddings", "total_duration", "load_duration", "prompt_eval_count"}
    assert [len(vector) for vector in answer["embeddings"]] == [384] * (len(texts) if isinstance(texts, list) else 1)


@pytest.mark.usefixtures("pulled")
def test_embeddings_as_they_were_before(server: TextServing) -> None:
    asked(server, "/api/pull", model="minilm", stream=False)
    (answer,) = asked(server, "/api/embeddings", model="minilm", prompt="A page about birds")
    assert (answer.keys(), len(answer["embedding"])) == ({"embedding"}, 384)
