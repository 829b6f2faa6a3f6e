"""What the text engine counts of requests, however they end, and the page that shows it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse

from bident.errors import Code, ServeError
from bident.text import figures as figures_module
from bident.text.doors.metrics import FAMILIES, Metrics
from bident.text.engine import TextEngine
from bident.text.figures import Figures
from bident.wire.text import EmbedRequest, Message, TextEnd, TextPiece, TextRequest, Usage

USAGE = Usage(prompt_tokens=7, cached_tokens=3, prompt_ns=2_000_000_000, answer_tokens=5, answer_ns=500_000_000)


def ask(figures: Figures, error: BaseException | None = None, model: str = "m", *, end: bool = True) -> None:
    """One request for an answer that ends with ``error``."""
    with figures.asking("answer") as asking:
        if model:
            asking.found(model)
        asking.event(TextPiece(content="a"))
        asking.event(TextPiece(content="b"))
        if end:
            asking.event(TextEnd())
            asking.event(TextEnd(usage=USAGE))
        if error is not None:
            raise error


def test_an_answer() -> None:
    figures = Figures()
    ask(figures)
    ask(figures)
    model = figures.models["m"]
    assert model.ends == {("answer", "success"): 2}
    assert (model.prompt_tokens, model.cached_tokens, model.answer_tokens) == (14, 6, 10)
    assert (model.prompt_seconds, model.answer_seconds) == (4.0, 1.0)
    assert model.first_seconds.cumulative[-1] == model.seconds["answer"].cumulative[-1] == 2
    assert model.under_way == 0


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ServeError(Code.INVALID_ARG, "x"), "refused"),
        (ServeError(Code.UNSUPPORTED, "x"), "refused"),
        (ServeError(Code.UNAVAILABLE, "x"), "unavailable"),
        (ServeError(Code.INTERNAL, "x"), "failed"),
        (ZeroDivisionError(), "failed"),
        (asyncio.CancelledError(), "abandoned"),
        (GeneratorExit(), "abandoned"),
    ],
)
def test_how_requests_end(error: BaseException, outcome: str) -> None:
    figures = Figures()
    with pytest.raises(type(error)):
        ask(figures, error, end=False)
    model = figures.models["m"]
    assert model.ends == {("answer", outcome): 1}
    assert model.seconds["answer"].cumulative[-1] == 0
    assert model.under_way == 0


def test_a_client_that_leaves_with_its_whole_answer_has_it() -> None:
    figures = Figures()
    with pytest.raises(GeneratorExit):
        ask(figures, GeneratorExit())
    assert figures.models["m"].ends == {("answer", "success"): 1}


def test_names_that_clients_make_up_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = Figures()
    for name in ("", "unknown", "far"):  # the last two by an upstream, which does not know them either
        with pytest.raises(ServeError):
            ask(figures, ServeError(Code.NOT_FOUND, "x"), name, end=False)
    assert {name: dict(model.ends) for name, model in figures.models.items()} == {"": {("answer", "refused"): 3}}
    ask(figures, model="m" * 1000)
    assert list(figures.models) == [""]
    monkeypatch.setattr(figures_module, "_MOST_MODELS", 3)
    for number in range(10):
        ask(figures, model=f"m{number}")
    assert list(figures.models) == ["", "m0", "m1"]
    assert figures.models[""].ends["answer", "success"] == 9


class Nobody:
    """A library and a residency without a model; an upstream that has one."""

    turnover: dict[str, Any] = {}  # noqa: RUF012

    async def find(self, name: str) -> Any:
        raise ServeError(Code.NOT_FOUND, f"model '{name}' not found")

    def running(self) -> list[Any]:
        return []

    def waiting(self) -> Counter[str]:
        return Counter()


class Upstream:
    def find(self, model: str) -> Any:
        from bident.text.answering.asked import Server

        return Server(self, False, "theirs") if model == "far" else None

    async def stream(self, path: str, payload: Any) -> AsyncGenerator[dict[str, Any], None]:
        yield {"choices": [{"index": 0, "delta": {"content": "hello"}}]}

    async def ask(self, path: str, payload: Any) -> dict[str, Any]:
        return {"data": [{"index": 0, "embedding": [0.0, 2.0]}], "usage": {"prompt_tokens": 4}}


def test_the_engine_counts() -> None:
    nobody: Any = Nobody()
    engine = TextEngine(nobody, nobody, Upstream())

    async def scene() -> None:
        request = TextRequest(model="far", messages=[Message("user", "hi")])
        assert [event async for event in engine.answer(request)]
        assert (await engine.embed(EmbedRequest(model="far", inputs=["a"]))).vectors
        events = engine.answer(request)
        await anext(events)
        await events.aclose()
        with pytest.raises(ServeError):
            await engine.embed(EmbedRequest(model="near", inputs=["a"]))

    asyncio.run(scene())
    assert {name: dict(model.ends) for name, model in engine.figures.models.items()} == {
        "far": {("answer", "success"): 1, ("embed", "success"): 1, ("answer", "abandoned"): 1},
        "": {("embed", "refused"): 1},
    }


def page(engine: Any, path: str = "/metrics") -> httpx.Response:
    app = Metrics(PlainTextResponse("the app", 404), engine)

    async def get() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get(path)

    return asyncio.run(get())


def test_the_page() -> None:
    figures = Figures()
    ask(figures)
    with pytest.raises(ServeError):
        ask(figures, ServeError(Code.NOT_FOUND, "x"), "")
    answer = page(SimpleNamespace(figures=figures, residency=Nobody()))
    assert answer.headers["content-type"].startswith("text/plain")
    lines = answer.text.splitlines()
    assert [line.split()[2] for line in lines if line.startswith("# TYPE")] == [family.name for family in FAMILIES]
    for line in (
        'bident_text_requests_total{kind="answer",model="m",outcome="success"} 1',
        'bident_text_requests_total{kind="answer",model="",outcome="refused"} 1',
        'bident_text_requests_total{kind="answer",model="m",outcome="failed"} 0',
        'bident_text_request_seconds_count{kind="answer",model="m"} 1',
        'bident_text_first_token_seconds_bucket{le="+Inf",model="m"} 1',
        'bident_text_answer_tokens_total{model="m"} 5',
        'bident_text_prompt_seconds_total{model="m"} 2.0',
        "bident_text_models_loaded 0",
    ):
        assert line in lines
    assert not any(line.startswith("bident_text_prompt_tokens_total") and 'model=""' in line for line in lines)


def test_other_paths_are_the_applications() -> None:
    assert page(None, "/api/tags").text == "the app"


def test_the_names_are_as_prometheus_wants_them() -> None:
    for family in FAMILIES:
        assert (family.kind == "counter") == family.name.endswith("_total")
        assert family.help
        assert "\n" not in family.help
