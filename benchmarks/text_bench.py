"""The text server against the llama.cpp process behind it, against one slot, and from nothing loaded."""

from __future__ import annotations

import json
import statistics
import time
import urllib.request
from collections.abc import Callable
from typing import Any

from benchmarks.client import ask
from benchmarks.plan import Plan
from benchmarks.rounds import interleave
from benchmarks.table import Bar, Row, compared, measured
from benchmarks.text_client import Asked, Crowd, crowd, stream
from benchmarks.text_servers import BareChild, TextServer, pulled

TITLE = "Text: SmolLM2-135M Q4_1, MiniLM F16"
CHAT, EMBEDDER = "smollm2", "minilm"
NATIVE, OPENAI = "/api/chat", "/v1/chat/completions"
CLIENTS = 4
TOKENS = 32
"""Of an answer. Turns are short and many: what else the machine does then hits all contenders alike."""
FEW_TOKENS = 4
MANY_TOKENS = 64
TURNS = 4
"""Turns of each contender in one of the plan's rounds."""
FIRST_TOKENS_A_ROUND = 20
SENTENCES = [f"Sentence {number} tells of a cat that sleeps while the interest rate rises." for number in range(64)]
_SUBJECTS = ("a lighthouse", "two brothers", "the last train", "an old clock")

CHILD = "llama.cpp"


def run(plan: Plan) -> list[Row]:
    """The comparisons, one after the other; what is not being compared is not running."""
    chat, embedder = pulled(CHAT), pulled(EMBEDDER)
    with TextServer(plan.log("text")) as server:
        with BareChild(chat, plan.log("child")) as child:
            rows = _rates(plan, server, child)
            rows.append(_first_token(plan, server, child))
        rows += _slots(plan, server)
        rows.append(_cold(plan, server))
        with BareChild(embedder, plan.log("embedder")) as child:
            rows.append(_embeddings(plan, server, child))
    return rows


def _rates(plan: Plan, server: TextServer, child: BareChild) -> list[Row]:
    """Tokens per second as the clients see them, from the request to the end of the answer."""
    rows = []
    for clients in (1, CLIENTS):
        native, openai, bare = interleave(
            plan.rounds * TURNS,
            lambda clients=clients: _rate(server, NATIVE, clients),
            lambda clients=clients: _rate(server, OPENAI, clients),
            lambda clients=clients: _rate(child, OPENAI, clients),
        )
        who = "1 client" if clients == 1 else f"{clients} clients"
        bar = Bar(at_least=0.97)
        rows += [compared(f"{NATIVE}, {who}", "tokens/s", bar, native, CHILD, bare)]
        rows += [compared(f"{OPENAI}, {who}", "tokens/s", bar, openai, CHILD, bare)]
    return rows


def _rate(server: Asked, path: str, clients: int) -> float:
    return _crowd(server, path, clients, TOKENS).tokens_per_second


def _crowd(server: Asked, path: str, clients: int, tokens: int) -> Crowd:
    found = crowd(server, path, [_payload(path, tokens, subject) for subject in _SUBJECTS[:clients]])
    if any(each.tokens != tokens for each in found.streams):
        raise RuntimeError(f"an answer is not {tokens} tokens long: {found}")
    return found


def _first_token(plan: Plan, server: TextServer, child: BareChild) -> Row:
    """What the server adds. The prompt is in the cache of both: how long it takes to read is not the question."""

    def first(asked: Asked, path: str) -> Callable[[], float]:
        payload = _payload(path, FEW_TOKENS, _SUBJECTS[0])
        return lambda: stream(asked, path, payload).first_seconds * 1e3

    ours, bare = interleave(plan.rounds * FIRST_TOKENS_A_ROUND, first(server, NATIVE), first(child, OPENAI))
    added = statistics.median(mine - theirs for mine, theirs in zip(ours, bare, strict=True))
    return measured(f"{NATIVE}, added to the time to the first token", "ms", Bar(at_most=3.0), [added])


def _slots(plan: Plan, server: TextServer) -> list[Row]:
    """The default number of slots against one; Ollama's default is one."""
    with TextServer(plan.log("one_slot"), "--num-parallel=1") as single:
        many, one = interleave(
            plan.rounds * 2,
            lambda: _crowd(server, NATIVE, CLIENTS, MANY_TOKENS),
            lambda: _crowd(single, NATIVE, CLIENTS, MANY_TOKENS),
        )
    rates = [[each.tokens_per_second for each in crowds] for crowds in (many, one)]
    waits = [[each.worst_first_seconds * 1e3 for each in crowds] for crowds in (many, one)]
    who = f"{CLIENTS} clients on 4 slots"
    return [
        compared(f"{who}, all together", "tokens/s", Bar(at_least=1.35), rates[0], "1 slot", rates[1]),
        compared(f"{who}, worst first token", "ms", Bar(at_most=0.2), waits[0], "1 slot", waits[1]),
    ]


def _cold(plan: Plan, server: TextServer) -> Row:
    """From a request for a model that is not loaded to its first token."""

    def start() -> float:
        ask(server, NATIVE, json.dumps({"model": CHAT, "messages": [], "keep_alive": 0, "stream": False}).encode())
        deadline = time.monotonic() + 10
        while _loaded(server):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{CHAT} is still loaded")
            time.sleep(0.01)
        return stream(server, NATIVE, _payload(NATIVE, FEW_TOKENS, _SUBJECTS[0])).first_seconds

    # The first start reads files that later ones find in the page cache.
    _, *starts = [start() for _ in range(plan.rounds + 1)]
    return measured(f"{CHAT} not loaded, to the first token", "s", Bar(at_most=1.5), starts)


def _loaded(server: TextServer) -> bool:
    with urllib.request.urlopen(server.url("/api/ps"), timeout=10) as answer:
        return bool(json.load(answer)["models"])


def _embeddings(plan: Plan, server: TextServer, child: BareChild) -> Row:
    body = json.dumps({"model": EMBEDDER, "input": SENTENCES}).encode()

    def rate(asked: Any, headers: dict[str, str]) -> float:
        start = time.perf_counter()
        answer = ask(asked, "/v1/embeddings", body, headers)
        seconds = time.perf_counter() - start
        if len(json.loads(answer)["data"]) != len(SENTENCES):
            raise RuntimeError(f"not {len(SENTENCES)} vectors: {answer[:300]!r}")
        return len(SENTENCES) / seconds

    bearer = dict(header.split(": ") for header in child.headers)
    ours, bare = interleave(plan.rounds, lambda: rate(server, {}), lambda: rate(child, bearer))
    return compared(f"/v1/embeddings, {len(SENTENCES)} sentences", "sentences/s", Bar(at_least=0.9), ours, CHILD, bare)


def _payload(path: str, tokens: int, subject: str) -> dict[str, Any]:
    """One and the same question in the words of ``path``."""
    messages = [{"role": "user", "content": f"Write a long story about {subject}."}]
    asked: dict[str, Any] = {"model": CHAT, "messages": messages, "stream": True}
    if path == NATIVE:
        return asked | {"options": {"temperature": 0, "num_predict": tokens}}
    return asked | {"temperature": 0, "max_tokens": tokens, "stream_options": {"include_usage": True}}
