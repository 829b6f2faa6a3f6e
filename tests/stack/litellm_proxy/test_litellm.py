"""The real LiteLLM proxy before both servers: each of its routes to them, started on what ``bident connect`` prints."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http as triton
from litellm_site import LITELLM, MASTER_KEY, Proxy, Servers, started, with_more_routes, written
from tritonclient.utils import InferenceServerException

from benchmarks.ports import free_port
from otlp_receiver import OtlpReceiver, Received
from tests.e2e.serving import eventually

# Installing takes a minute.
pytestmark = pytest.mark.timeout(900)

QUESTION = [{"role": "user", "content": "Which city is the capital of France?"}]
ASKED = {"messages": QUESTION, "temperature": 0, "max_tokens": 12}
STORY = [{"role": "user", "content": "Tell a long story."}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}}, "required": ["city"]}
PLACES = ({"city": "Paris"}, {"city": "Rome"})
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Of a city", "parameters": SCHEMA}}]
CALL = '{"name": "weather", "arguments": {"city": "Paris"}}'
REPEAT = [
    {"role": "user", "content": f"Repeat: {CALL}"},
    {"role": "assistant", "content": CALL},
    {"role": "user", "content": f"Repeat: {CALL}"},
]
"""What makes so small a model call a tool."""
TEXTS = ["A cat sleeps.", "Two\nlines"]
FLOWERS = np.array([[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]], np.float32)
ROUTES = ("ollama_chat", "openai")


@dataclass(frozen=True)
class Site:
    """The servers, a proxy for each route to their chats, and what takes their traces: the second's with texts."""

    servers: Servers
    proxies: dict[str, Proxy]
    clients: dict[str, httpx.Client]
    receiver: OtlpReceiver


@pytest.fixture(scope="module")
def site(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("litellm")
    with Servers(folder, samples, "of-our-servers") as servers, OtlpReceiver() as receiver:
        langfuse = {
            "LANGFUSE_PUBLIC_KEY": "pk-1",
            "LANGFUSE_SECRET_KEY": "sk-1",
            "LANGFUSE_OTEL_HOST": receiver.host,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }
        printed = written(servers, folder / "ollama_chat", "langfuse=true")
        more = with_more_routes(written(servers, folder / "openai", "route=openai", "langfuse=text"), servers)
        proxies = {
            "ollama_chat": Proxy(printed, folder / "ollama_chat.log", BIDENT_API_KEY=servers.key, **langfuse),
            "openai": Proxy(more, folder / "openai.log", BIDENT_API_KEY=servers.key, **langfuse),
        }
        with started(*proxies.values()):
            clients = {route: proxy.client() for route, proxy in proxies.items()}
            yield Site(servers, proxies, clients, receiver)


@pytest.fixture(params=ROUTES)
def route(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def chat(client: httpx.Client, **body: Any) -> dict[str, Any]:
    reply = client.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


def streamed(client: httpx.Client, **body: Any) -> list[dict[str, Any]]:
    """The chunks of a streamed answer."""
    reply = client.post(
        "/v1/chat/completions", json={**body, "stream": True, "stream_options": {"include_usage": True}}
    )
    assert reply.status_code == 200, reply.text
    *chunks, last = [line.removeprefix("data: ") for line in reply.text.splitlines() if line]
    assert last == "[DONE]"
    return [json.loads(chunk) for chunk in chunks]


def deltas(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [choice["delta"] for chunk in chunks for choice in chunk["choices"]]


def finish(chunks: list[dict[str, Any]]) -> str:
    (reason,) = {c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c.get("finish_reason")}
    return str(reason)


def tokens(usage: dict[str, Any]) -> tuple[int, int]:
    return usage["prompt_tokens"], usage["completion_tokens"]


def refused(client: httpx.Client, path: str = "/v1/chat/completions", **body: Any) -> tuple[int, str]:
    reply = client.post(path, json=body)
    return reply.status_code, reply.json()["error"]["message"]


def test_a_chat_with_our_usage(site: Site, route: str) -> None:
    with site.servers.text() as text:
        ours = chat(text, model="smollm2", **ASKED)
    theirs = chat(site.clients[route], model="smollm2", **ASKED)
    assert "Paris" in theirs["choices"][0]["message"]["content"]
    assert theirs["choices"][0]["message"]["content"] == ours["choices"][0]["message"]["content"]
    assert tokens(theirs["usage"]) == tokens(ours["usage"])
    chunks = streamed(site.clients[route], model="smollm2", **ASKED)
    said = "".join(delta.get("content") or "" for delta in deltas(chunks))
    assert said == theirs["choices"][0]["message"]["content"]
    assert tokens(chunks[-1]["usage"]) == tokens(ours["usage"])
    assert finish(chunks) == theirs["choices"][0]["finish_reason"] == "stop"


def test_an_answer_that_is_cut(site: Site, route: str) -> None:
    asked = {**ASKED, "max_tokens": 2}
    answer = chat(site.clients[route], model="smollm2", **asked)
    assert (answer["choices"][0]["finish_reason"], answer["usage"]["completion_tokens"]) == ("length", 2)
    assert finish(streamed(site.clients[route], model="smollm2", **asked)) == "length"


def test_a_call_of_a_tool(site: Site, route: str) -> None:
    asked = {"model": "tooled", "messages": REPEAT, "tools": TOOLS, "temperature": 0, "max_tokens": 60}
    choice = chat(site.clients[route], **asked)["choices"][0]
    chunks = streamed(site.clients[route], **asked)
    (call,), (streamed_call,) = choice["message"]["tool_calls"], called(chunks)
    for each in (call, streamed_call):
        assert each["function"]["name"] == "weather"
        assert json.loads(each["function"]["arguments"]) == {"city": "Paris"}
        assert each["id"]
    assert choice["finish_reason"] == finish(chunks) == "tool_calls"
    # And back: the call and its result in the history.
    told = [*REPEAT, choice["message"], {"role": "tool", "tool_call_id": call["id"], "content": "Sunny"}]
    assert chat(site.clients[route], **{**asked, "messages": told, "max_tokens": 4})["choices"]


def called(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [call for delta in deltas(chunks) for call in delta.get("tool_calls") or ()]


def test_a_call_that_is_required(site: Site) -> None:
    """By OpenAI's route: by the other one LiteLLM drops ``tool_choice``."""
    asked = {"model": "tooled", "tools": TOOLS, "tool_choice": "required", **ASKED, "max_tokens": 60}
    (call,) = chat(site.clients["openai"], **asked)["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) in PLACES


def test_logprobs(site: Site) -> None:
    """By OpenAI's route, for the same reason."""
    asked = {"model": "smollm2", **ASKED, "max_tokens": 2, "logprobs": True}
    assert len(chat(site.clients["openai"], **asked)["choices"][0]["logprobs"]["content"]) == 2
    assert not chat(site.clients["ollama_chat"], **asked)["choices"][0].get("logprobs")


def test_an_answer_of_a_schema(site: Site, route: str) -> None:
    place = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA}}
    asked = {"model": "smollm2", **ASKED, "max_tokens": 60, "response_format": place}
    assert json.loads(chat(site.clients[route], **asked)["choices"][0]["message"]["content"]) in PLACES
    chunks = streamed(site.clients[route], **asked)
    assert json.loads("".join(delta.get("content") or "" for delta in deltas(chunks))) in PLACES


def test_what_clients_send_by_default(site: Site, route: str) -> None:
    """A ``frequency_penalty`` of 0, which LiteLLM makes Ollama's ``repeat_penalty``, and what it drops."""
    asked = {"model": "smollm2", **ASKED, "frequency_penalty": 0, "presence_penalty": 0, "top_p": 1}
    assert "Paris" in chat(site.clients[route], **asked)["choices"][0]["message"]["content"]


def test_other_doors_of_litellm(site: Site, route: str) -> None:
    client = site.clients[route]
    respond = {"model": "smollm2", "input": "Say hello.", "max_output_tokens": 16}
    assert client.post("/v1/responses", json=respond).json()["usage"]["output_tokens"] > 0
    message = {"model": "smollm2", "messages": QUESTION, "max_tokens": 8}
    assert client.post("/v1/messages", json=message).json()["usage"]["output_tokens"] > 0
    assert chat(site.clients["openai"], model="generate", **ASKED)["usage"]["completion_tokens"] > 0


def test_embeddings_are_ours(site: Site, route: str) -> None:
    with site.servers.text() as text:
        ours = text.post("/v1/embeddings", json={"model": "minilm", "input": TEXTS}).json()
    theirs = site.clients[route].post("/v1/embeddings", json={"model": "minilm", "input": TEXTS}).json()
    vectors = [np.array([each["embedding"] for each in answer["data"]]) for answer in (ours, theirs)]
    assert vectors[0].shape == (2, 384)
    np.testing.assert_allclose(vectors[1], vectors[0], atol=1e-6)
    assert theirs["usage"]["prompt_tokens"] == ours["usage"]["prompt_tokens"]
    alone = site.clients[route].post("/v1/embeddings", json={"model": "minilm", "input": TEXTS[0]}).json()
    assert len(alone["data"]) == 1


def test_a_model_that_is_not(site: Site) -> None:
    client = site.clients["openai"]
    for name in ("nobody", "nobody-ollama"):
        for stream in (False, True):
            status, said = refused(client, model=name, stream=stream, **ASKED)
            assert (status, "model 'nobody' not found" in said) == (404, True), said
    status, said = refused(client, model="unlisted", **ASKED)
    assert (status, "Invalid model name" in said) == (400, True), said
    status, said = refused(client, model="wrong-base", **ASKED)
    assert (status, "does not end in /v1" in said) == (404, True), said


def test_what_a_model_cannot_do(site: Site, route: str) -> None:
    status, said = refused(site.clients[route], model="smollm2", tools=TOOLS, **ASKED)
    assert (status, "does not support tools" in said) == (400, True), said
    status, said = refused(site.clients[route], "/v1/embeddings", model="minilm", input=["a", ""])
    assert (status, "input 1 is empty" in said) == (400, True), said


@pytest.mark.parametrize("stream", [False, True])
def test_too_many_at_once(site: Site, route: str, stream: bool) -> None:
    """One is answered, one waits, the others are told to come again; then all is as before."""
    client = site.clients[route]
    asked = {"model": "smollm2", "messages": STORY, "max_tokens": 50}
    once = {**asked, "stream": stream, "num_retries": 0, "max_retries": 0}
    with ThreadPoolExecutor(6) as pool:
        replies = list(pool.map(lambda _: client.post("/v1/chat/completions", json=once), range(6)))
    statuses = sorted(reply.status_code for reply in replies)
    assert set(statuses) == {200, 503}, statuses
    assert all("server busy" in reply.text for reply in replies if reply.status_code == 503)
    assert chat(client, model="smollm2", **ASKED)["choices"]


def test_a_model_that_dies_amid_a_stream(site: Site, route: str) -> None:
    """What has come stands, the stream ends with the reason, and the next request is answered."""
    client = site.clients[route]
    asked = {"model": "tooled", "messages": STORY, "temperature": 0, "max_tokens": 400}
    site.servers.unload("smollm2", "tooled")
    assert chat(client, **{**asked, "max_tokens": 60})["choices"][0]["finish_reason"] == "length"
    with client.stream("POST", "/v1/chat/completions", json={**asked, "stream": True}) as reply:
        lines = (line for line in reply.iter_lines() if line)
        first = json.loads(next(lines).removeprefix("data: "))
        os.kill(site.servers.last_loaded(), signal.SIGKILL)
        *_, last = [line for line in lines if line != "data: [DONE]"]
    assert first["choices"]
    assert "its process was killed by signal 9" in json.loads(last.removeprefix("data: "))["error"]["message"]
    assert chat(client, **{**asked, "max_tokens": 1})["choices"]


def test_openais_own_client(site: Site, route: str) -> None:
    script = Path(__file__).with_name("openai_client_script.py")
    command = [LITELLM / "python", script, site.proxies[route].url(""), MASTER_KEY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert "Paris" in said["chat"]
    assert said["stream"] == said["chat"]
    assert said["tokens"][0] == said["tokens"][1] > 0
    assert said["vectors"] == [384, 384]
    assert {"smollm2", "tooled", "minilm"} <= set(said["models"])


@pytest.mark.parametrize(("route", "word", "told"), [("ollama_chat", "xyzzy", False), ("openai", "plugh", True)])
def test_traces_for_langfuse(site: Site, route: str, word: str, told: bool) -> None:
    """One generation for a chat, with its tokens; its texts only where ``langfuse=text`` asked for them."""
    secret = [{"role": "user", "content": f"The password is {word}."}]
    usage = chat(site.clients[route], model="smollm2", messages=secret, max_tokens=5)["usage"]
    counts = ("llm.token_count.prompt", "llm.token_count.completion")

    def generations() -> list[Received]:
        found = site.receiver.spans
        alike = [span for span in found if tuple(span.attributes.get(key) for key in counts) == tokens(usage)]
        return [span for span in alike if span.attributes["llm.provider"] == route]

    (span,) = eventually(generations, "a span with the tokens of the chat")
    assert set(site.receiver.paths) == {"/api/public/otel/v1/traces"}
    keys = base64.b64encode(b"pk-1:sk-1").decode()
    assert {headers["authorization"] for headers in site.receiver.headers} == {f"Basic {keys}"}
    assert span.attributes["langfuse.observation.type"] == "generation"
    assert site.receiver.says(word) is told


def test_tensors_pass(site: Site) -> None:
    client = site.clients["ollama_chat"]
    rows = {"name": "X", "shape": [2, 4], "datatype": "FP32", "data": FLOWERS.ravel().tolist()}
    answer = client.post("/tensor/v2/models/iris_sklearn/infer", json={"inputs": [rows]}).json()
    assert answer["outputs"][0]["data"] == [0, 2]
    felt = client.post("/tensor/v2/models/text_classifier/generate", json={"TEXT": "Bad movie"}).json()
    assert felt["LABEL"] == "NEGATIVE"
    told = {"text_input": "one two", "stream": True, "parameters": {"max_tokens": 2}}
    events = client.post("/tensor/v2/models/teller/generate_stream", json=told).text
    assert [json.loads(line[6:])["text_output"] for line in events.splitlines() if line] == ["one ", "two "]
    unknown = client.get("/tensor/v2/models/nobody")
    assert (unknown.status_code, "unknown model: 'nobody'" in unknown.text) == (400, True)


@pytest.mark.parametrize("binary", [False, True], ids=["json-answer", "binary-answer"])
def test_tensors_pass_for_tritonclient(site: Site, binary: bool) -> None:
    flowers = triton.InferInput("X", [2, 4], "FP32")
    flowers.set_data_from_numpy(FLOWERS, binary_data=False)
    wanted = [triton.InferRequestedOutput("label", binary_data=binary)]
    shown = {"Authorization": f"Bearer {MASTER_KEY}"}
    with triton.InferenceServerClient(f"127.0.0.1:{site.proxies['ollama_chat'].port}/tensor") as client:
        assert client.is_server_ready(headers=shown)
        answer = client.infer("iris_sklearn", [flowers], outputs=wanted, headers=shown)
        assert answer.as_numpy("label").ravel().tolist() == [0, 2]


def test_binary_requests_do_not_pass_and_are_refused(site: Site) -> None:
    """LiteLLM reads bodies as JSON, and sends an empty object for what is none."""
    flowers = triton.InferInput("X", [2, 4], "FP32")
    flowers.set_data_from_numpy(FLOWERS)
    shown = {"Authorization": f"Bearer {MASTER_KEY}"}
    with (
        triton.InferenceServerClient(f"127.0.0.1:{site.proxies['ollama_chat'].port}/tensor") as client,
        pytest.raises(InferenceServerException, match="'inputs'"),
    ):
        client.infer("iris_sklearn", [flowers], headers=shown)


@pytest.mark.parametrize("path", ["/tensor/v2/repository/index", "/tensor/v2/models/%2e%2e/repository/index"])
def test_models_are_not_controlled_through_it(site: Site, path: str) -> None:
    assert site.clients["ollama_chat"].post(path, json={}).status_code == 404
    assert httpx.post(site.servers.url("/v2/repository/index"), json={}, trust_env=False).status_code == 401


def checked(site: Site, *words: str, key: str = MASTER_KEY, route: str = "ollama_chat") -> list[dict[str, Any]]:
    """The hops of ``bident connect litellm --check``; its exit code fits them."""
    proxy = site.proxies[route].url("")
    command = ("connect", "litellm", "--check", "--json", "--set", f"proxy={proxy}", *words)
    done = site.servers.bident(*command, LITELLM_MASTER_KEY=key)
    said = json.loads(done.stdout)
    assert said["works"] is (done.returncode == 0), done.stderr
    assert said["works"] is all(hop["works"] for hop in said["hops"])
    hops: list[dict[str, Any]] = said["hops"]
    return hops


def test_the_check_finds_every_hop_working(site: Site, route: str) -> None:
    hops = checked(site, route=route)
    assert all(hop["works"] for hop in hops), hops
    names = [hop["name"] for hop in hops]
    for name in ("the text server", "LiteLLM", "LiteLLM's key", "LiteLLM's models", "LiteLLM -> minilm"):
        assert name in names
    assert names[-1].startswith("LiteLLM -> /tensor -> ")
    assert len(checked(site, "smollm2", "iris_sklearn", route=route)) == 7


def test_the_check_names_the_hop_that_fails(site: Site) -> None:
    stopped = checked(site, "smollm2", "--set", f"proxy=http://127.0.0.1:{free_port()}")[-1]
    assert (stopped["name"], "nothing answers" in stopped["seen"], "--config" in stopped["cure"]) == (
        "LiteLLM",
        True,
        True,
    )
    stranger = checked(site, "smollm2", "--set", f"proxy={site.servers.text_url}")[-1]
    assert (stranger["name"], "not as LiteLLM does" in stranger["seen"]) == ("LiteLLM", True)
    for key in ("sk-wrong", ""):
        unknown = checked(site, "smollm2", key=key)[-1]
        assert (unknown["name"], "LITELLM_MASTER_KEY" in unknown["cure"]) == ("LiteLLM's key", True)
    with site.servers.text() as text:
        text.post("/api/copy", json={"source": "smollm2", "destination": "later"}).raise_for_status()
        missing = checked(site, "smollm2", "later")[-1]
        text.request("DELETE", "/api/delete", json={"model": "later"}).raise_for_status()
    assert (missing["name"], "does not have later" in missing["seen"]) == ("LiteLLM's models", True)
