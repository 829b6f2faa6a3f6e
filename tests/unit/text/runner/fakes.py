"""Models and children that exist only in the tests."""

from __future__ import annotations

import asyncio
from datetime import datetime, timezone
from pathlib import Path

from bident.errors import Code, ServeError
from bident.text.gguf import GgufFacts
from bident.text.model import TextModel
from bident.text.names import ModelName

MIB = 1 << 20
FACTS = GgufFacts(
    architecture="llama",
    context_length=8192,
    embedding_length=576,
    block_count=30,
    head_count=9,
    head_count_kv=3,
    kv_heads=90,
    key_length=64,
    value_length=64,
    feed_forward_length=1536,
    vocabulary_size=49152,
)
"""Those of SmolLM2-135M: 22.5 KiB of cache for each token in f16."""


def model(folder: Path, name: str = "m", size: int = 100 * MIB, **more) -> TextModel:
    """A model whose weights are a hole of ``size`` bytes."""
    weights = folder / f"{name}.gguf"
    if not weights.exists():
        with weights.open("wb") as file:
            file.truncate(size)
    return TextModel(
        **{
            "name": ModelName.parse(name),
            "digest": name,
            "size": size,
            "modified_at": datetime.now(timezone.utc),
            "weights": weights,
            "facts": FACTS,
            "capabilities": frozenset({"completion"}),
            **more,
        }
    )


class FakeProcess:
    """A child that dies when it is told to."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.how = ""
        self._tell = lambda: None

    def when_ended(self, tell) -> None:
        self._tell = tell
        if self.how:
            tell()

    def die(self, how: str = "it died") -> None:
        self.how = how
        self._tell()


class FakeLoaded:
    """A loaded model; ``stopped`` once it has been ended."""

    def __init__(self, wish, plan, pid: int = 1) -> None:
        self.wish, self.plan, self.active, self.stopped = wish, plan, 0, False
        self.process = FakeProcess(pid)

    async def stop(self) -> None:
        await asyncio.sleep(0)
        self.stopped = True


class FakeLoader:
    """Loads as ``Residency`` does, but when the test lets it. ``fails`` is raised instead."""

    def __init__(self, limits, slots: int = 2) -> None:
        self.limits, self.slots = limits, slots
        self.loaded: list[FakeLoaded] = []
        self.started = 0
        self.fails: Exception | None = None
        self.may = asyncio.Event()
        self.may.set()

    async def __call__(self, resident, wish):
        self.started += 1
        await self.may.wait()
        if self.fails is not None:
            raise self.fails
        await resident.give_up()
        self.loaded.append(FakeLoaded(wish, wish.plan(self.limits, self.slots, 1), 100 + len(self.loaded)))
        return self.loaded[-1]


def broken(message: str = "unable to load") -> ServeError:
    """What a damaged model raises."""
    return ServeError(Code.INTERNAL, message)
