"""The text server against the llama.cpp process behind it, against one slot, and from nothing loaded."""

from __future__ import annotations

import json
import statistics
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from benchmarks import models, wrk
from benchmarks.client import ask
from benchmarks.plan import Plan
from benchmarks.rounds import interleave
from benchmarks.servers import Bident
from benchmarks.table import Bar, Row, compared, measured
from benchmarks.text_client import Asked, Crowd, crowd, stream
from benchmarks.text_servers import BareChild, TextServer, pulled
from bident.text.runner.machine import usable_cores

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
            rows += _slots(plan, server, child)
        rows.append(_cold(plan, server))
        rows.append(_tensor_beside(plan, server))
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


def _rate(server: Asked, path: str, clients: int, tokens: int = TOKENS) -> float:
    return _crowd(server, path, clients, tokens).tokens_per_second


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


def _slots(plan: Plan, server: TextServer, child: BareChild) -> list[Row]:
    """The default number of slots against one, which is Ollama's default; contenders have the same threads.

    With one core left to the tensor engine, what slots gain is what llama.cpp itself gains by them on the others:
    that is its row. What they gain on all cores is another's.
    """
    with (
        TextServer(plan.log("one_slot"), "--num-parallel=1") as single,
        BareChild(pulled(CHAT), plan.log("one_slot_child"), slots=1) as single_child,
    ):
        many, one, bare_many, bare_one = interleave(
            plan.rounds * 2,
            lambda: _crowd(server, NATIVE, CLIENTS, MANY_TOKENS),
            lambda: _crowd(single, NATIVE, CLIENTS, MANY_TOKENS),
            lambda: _crowd(child, OPENAI, CLIENTS, MANY_TOKENS),
            lambda: _crowd(single_child, OPENAI, CLIENTS, MANY_TOKENS),
        )
    gains, bare_gains = _gains(many, one), _gains(bare_many, bare_one)
    waits = [[each.worst_first_seconds * 1e3 for each in crowds] for crowds in (many, one)]
    who = f"{CLIENTS} clients on 4 slots"
    return [
        compared(f"{who}, gain over 1 slot", "x", Bar(at_least=0.97), gains, CHILD, bare_gains),
        compared(f"{who}, worst first token", "ms", Bar(at_most=0.2), waits[0], "1 slot", waits[1]),
        _slots_on_all_cores(plan),
    ]


def _gains(many: Sequence[Crowd], one: Sequence[Crowd]) -> list[float]:
    return [mine.tokens_per_second / single.tokens_per_second for mine, single in zip(many, one, strict=True)]


def _slots_on_all_cores(plan: Plan) -> Row:
    """Both with a thread for each core, where nothing but text is served."""
    threads = f"--threads={usable_cores()}"
    with (
        TextServer(plan.log("all_cores"), threads) as four,
        TextServer(plan.log("all_cores_one_slot"), threads, "--num-parallel=1") as single,
    ):
        many, one = interleave(
            plan.rounds * 2,
            lambda: _rate(four, NATIVE, CLIENTS, MANY_TOKENS),
            lambda: _rate(single, NATIVE, CLIENTS, MANY_TOKENS),
        )
    who = f"{CLIENTS} clients on 4 slots, all cores, all together"
    return compared(who, "tokens/s", Bar(at_least=1.35), many, "1 slot, all cores", one)


def _tensor_beside(plan: Plan, server: TextServer) -> Row:
    """What a client of the tensor server waits while a text is generated, against when none is."""
    body = plan.workspace / "beside.json"
    body.write_bytes(models.IRIS_BODY)
    repository = plan.workspace / "beside"
    models.iris(repository, "iris_sklearn")
    with Bident(repository, plan.log("beside")) as tensors:
        url = tensors.url("/v2/models/iris_sklearn/infer")

        def p99() -> float:
            return wrk.run(url, body, connections=1, seconds=plan.seconds).p99_us

        def p99_beside_text() -> float:
            with _generating(server):
                return p99()

        beside, idle = interleave(plan.rounds, p99_beside_text, p99)
    return compared(
        "iris_sklearn over HTTP while a text is generated, p99", "us", Bar(at_most=3.0), beside, "idle", idle
    )


@contextmanager
def _generating(server: TextServer) -> Iterator[None]:
    """One client that has one text after the other written. Raises what it raised."""
    is_over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(_write_until, is_over, server)
        try:
            yield
        finally:
            is_over.set()
        if not writing.result():
            raise RuntimeError("no text was generated meanwhile")


def _write_until(is_over: threading.Event, server: TextServer) -> int:
    written = 0
    while not is_over.is_set():
        _crowd(server, NATIVE, 1, MANY_TOKENS)
        written += 1
    return written


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
