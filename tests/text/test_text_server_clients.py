"""The text server with its users' clients, unmodified: Ollama's, OpenAI's, Anthropic's, LangChain's, LlamaIndex's."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from text_serving import TextServing

from tests.shell import made

# Installing takes a minute.
pytestmark = pytest.mark.timeout(900)

PLACES = ({"city": "Paris"}, {"city": "Rome"})


@pytest.fixture(scope="module")
def said(serving: TextServing) -> dict[str, Any]:
    """What all clients were answered; their environment is made if it is not there or its packages have changed."""
    python = made("text-clients") / "bin" / "python"
    script = Path(__file__).with_name("text_clients_script.py")
    done = subprocess.run([python, script, serving.url], capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


def test_ollama_about_models(said: dict[str, Any]) -> None:
    answers = said["ollama"]
    assert {"smollm2:latest", "tooled:latest", "minilm:latest"} <= set(answers["list"])
    assert "completion" in answers["show"]
    assert answers["ps"] == [4096]
    assert (answers["load"], answers["unload"]) == ("load", "unload")
    assert (answers["create"], answers["copy"], answers["delete"]) == ("success", "success", ["success", "success"])
    assert "You are a pirate." in answers["created"]


def test_ollama_asks(said: dict[str, Any]) -> None:
    answers = said["ollama"]
    chat, generated = answers["chat"], answers["generate"]
    assert chat["message"]["content"] == "".join(answers["chat stream"])
    assert generated["response"] == "".join(answers["generate stream"])
    assert (chat["done_reason"], chat["eval_count"], generated["eval_count"]) == ("length", 4, 4)
    assert chat["total_duration"] >= chat["prompt_eval_duration"] + chat["eval_duration"] > 0
    assert generated["context"]
    assert json.loads(answers["format"]) in PLACES
    assert answers["logprobs"] == 4
    assert [len(vector) for vector in answers["embed"]["embeddings"]] == [384, 384]
    unknown = {"failed": "ResponseError", "status": 404, "said": "model 'nobody' not found"}
    assert unknown["said"] in answers["unknown"]["said"]
    assert (answers["unknown"]["failed"], answers["unknown"]["status"]) == ("ResponseError", 404)


def test_openai_chats(said: dict[str, Any]) -> None:
    answers = said["openai"]
    chat = answers["chat"]
    assert chat["choices"][0]["finish_reason"] == "length"
    assert chat["usage"]["completion_tokens"] == 4
    assert answers["n"] == 2
    *chunks, usage = answers["stream"]
    streamed = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
    assert streamed == chat["choices"][0]["message"]["content"]
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 4)
    assert answers["logprobs"] == 4
    assert json.loads(answers["schema"]) in PLACES


def test_openai_gets_the_call_it_requires(said: dict[str, Any]) -> None:
    choice = said["openai"]["required"]
    (call,) = choice["message"]["tool_calls"]
    assert (choice["finish_reason"], call["function"]["name"]) == ("tool_calls", "weather")
    assert json.loads(call["function"]["arguments"]) in PLACES


def test_the_rest_of_openai(said: dict[str, Any]) -> None:
    answers = said["openai"]
    assert "smollm2:latest" in answers["models"]
    assert answers["model"] == "smollm2"
    assert answers["completion"]
    assert "".join(answers["completion stream"])
    assert [len(vector) for vector in answers["embeddings"]] == [384, 384]
    assert answers["response"]
    assert isinstance(answers["response stream"], str)
    assert (answers["unknown"]["failed"], answers["unknown"]["status"]) == ("NotFoundError", 404)
    assert (answers["wrong"]["failed"], answers["wrong"]["status"]) == ("BadRequestError", 400)


def test_anthropic(said: dict[str, Any]) -> None:
    answers = said["anthropic"]
    message = answers["message"]
    assert message["content"][0]["text"]
    assert (message["stop_reason"], message["usage"]["output_tokens"]) == ("max_tokens", 4)
    assert (answers["stream"]["stop_reason"], answers["stream"]["usage"]["output_tokens"]) == ("max_tokens", 4)
    assert answers["count"] > 4
    assert answers["tool"]["stop_reason"] == "tool_use"
    assert answers["tool"]["content"][-1]["name"] == "weather"
    assert answers["tool"]["content"][-1]["input"] in PLACES
    assert (answers["unknown"]["failed"], answers["unknown"]["status"]) == ("NotFoundError", 404)


def test_frameworks(said: dict[str, Any]) -> None:
    answers = said["frameworks"]
    assert answers["langchain"]
    assert answers["langchain"] == answers["langchain stream"]
    assert answers["langchain schema"] in PLACES
    assert answers["langchain embeddings"] == 384
    assert isinstance(answers["llama-index"], str)
    assert isinstance(answers["llama-index stream"], str)
