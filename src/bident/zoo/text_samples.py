"""The sample models of the text engine: they go into its store, and are asked over Ollama's API."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bident.errors import Code, ServeError
from bident.text.store.catalog import CATALOG
from bident.zoo.recipe import Report, wrong_answer

if TYPE_CHECKING:
    from bident.text.store.library import Library

BACKEND = "llama.cpp"
_DIMENSIONS = 384


@dataclass(frozen=True)
class TextSample:
    """A model of the catalogue, and a question whose answer is known.

    ``path`` and ``body`` are the request (without its model), ``check`` takes the answer and returns it in a few
    words, or raises ServeError where it is wrong.
    """

    name: str
    input: str
    path: str
    body: Mapping[str, Any]
    check: Callable[[Mapping[str, Any]], str]

    @property
    def summary(self) -> str:
        """What the model is."""
        return CATALOG[self.name].summary

    def built(self, store: Path) -> bool:
        """Whether it is in ``store``."""

        async def look(library: Library) -> bool:
            try:
                await library.find(self.name)
            except ServeError as error:
                if error.code is Code.NOT_FOUND:
                    return False
                raise
            return True

        return bool(_in(store, look))

    def build(self, store: Path, report: Report, *, force: bool = False) -> bool:
        """Fetch it into ``store`` unless it is there, or ``force``; whether that was done.

        Raises ServeError with the cause. The model is there whole or not at all.
        """

        async def pull(library: Library) -> None:
            async for said in library.pull(self.name):
                total = said.get("total")
                report(str(said.get("status", "")), said.get("completed", 0) / total if total else None)

        if not force and self.built(store):
            return False
        _in(store, pull)
        return True


def _in(store: Path, work: Callable[[Library], Any]) -> Any:
    """What ``work`` gives, on the text engine's own library at ``store`` and no other one."""
    from bident.text.store.library import Library

    async def run() -> Any:
        library = Library(store)
        try:
            return await work(library)
        finally:
            await library.close()

    return asyncio.run(run())


def _names_paris(answer: Mapping[str, Any]) -> str:
    said = str(answer["message"]["content"]).strip()
    if "Paris" not in said:
        raise wrong_answer("something about Paris", said)
    return said


def _tells_cats_from_money(answer: Mapping[str, Any]) -> str:
    cat, kitten, money = answer["embeddings"]
    if len(cat) != _DIMENSIONS:
        raise wrong_answer(f"{_DIMENSIONS} numbers", str(len(cat)))
    near, far = _cosine(cat, kitten), _cosine(cat, money)
    if near < far + 0.3:
        raise wrong_answer("a kitten to be nearer to a cat than money is", f"{near:.2f} and {far:.2f}")
    return f"cat ~ kitten {near:.2f}, cat ~ interest rate {far:.2f}"


def _cosine(first: Sequence[float], second: Sequence[float]) -> float:
    dot = sum(a * b for a, b in zip(first, second, strict=True))
    return dot / (math.hypot(*first) * math.hypot(*second))


TEXT_SAMPLES: dict[str, TextSample] = {
    sample.name: sample
    for sample in (
        TextSample(
            name="smollm2",
            input="Which city is the capital of France?",
            path="/api/chat",
            body={
                "messages": [{"role": "user", "content": "Which city is the capital of France?"}],
                "options": {"temperature": 0, "num_predict": 32},
            },
            check=_names_paris,
        ),
        TextSample(
            name="minilm",
            input="a cat / a kitten / the interest rate",
            path="/api/embed",
            body={"input": ["A cat sleeps.", "A kitten naps.", "The central bank raised the interest rate."]},
            check=_tells_cats_from_money,
        ),
    )
}
"""Every one by name, in the order in which they are shown and fetched."""
