"""What a request wants of the way its model is loaded, and whether a loaded one will do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bident.errors import Code, ServeError, invalid_arg
from bident.text.model import TextModel
from bident.text.runner.limits import Limits
from bident.text.runner.machine import usable_cores
from bident.text.runner.memory import prompt_cache_bytes
from bident.text.runner.plan import Plan

_BATCH = 512
_LEAST_CONTEXT = 4
_MOST_BATCH = 1 << 16
_MOST_THREADS = 1 << 10
_MOST_LAYERS = 1 << 16
_MOST_DEVICES = 1 << 10
_COUNTS = ("num_thread", "num_batch", "num_gpu", "main_gpu")

Stamp = tuple[tuple[int, int, int], ...]
"""Inode, size and time of each file of a model: it tells whether one has been replaced."""


@dataclass(frozen=True)
class Wish:
    """The options that take effect when a model is loaded; named as in Ollama's API document."""

    model: TextModel
    stamp: Stamp
    context_length: int
    threads: int | None = None
    batch: int | None = None
    gpu_layers: int | None = None
    main_gpu: int | None = None
    use_mmap: bool | None = None

    def is_met_by(self, loaded: Wish) -> bool:
        """Whether a model loaded for ``loaded`` will do. A larger context does: it never shrinks by a request."""
        wanted = (self.threads, self.batch, self.gpu_layers, self.main_gpu, self.use_mmap)
        given = (loaded.threads, loaded.batch, loaded.gpu_layers, loaded.main_gpu, loaded.use_mmap)
        return (
            self.stamp == loaded.stamp
            and self.context_length <= loaded.context_length
            and all(want is None or want == have for want, have in zip(wanted, given, strict=True))
        )

    def asks_as_much_as(self, other: Wish) -> bool:
        """Whether what cannot be loaded for ``other`` cannot be for this one either."""
        return self.stamp == other.stamp and self.context_length >= other.context_length

    def plan(self, limits: Limits, slots: int, threads: int) -> Plan:
        """How to load it with so many slots; ``threads`` are what it gets unless it wants a number."""
        model, facts = self.model, self.model.facts
        embeds = embeds_only(model)
        # Of a text that is embedded, all tokens are worked on together.
        wanted = self.context_length if embeds else min(self.batch or _BATCH, _BATCH)
        # One token of each slot must fit in a batch: llama.cpp aborts otherwise.
        micro_batch = max(wanted, slots)
        # Quantised values need flash attention.
        flash_attention = limits.flash_attention if limits.kv_cache_type == "f16" else True
        return Plan(
            weights=str(model.weights),
            alias=model.name.short,
            context_length=self.context_length,
            slots=slots,
            # Those beyond the cores only wait for each other, and keep everybody else waiting.
            threads=min(self.threads, max(usable_cores(), limits.threads)) if self.threads else threads,
            batch=max(self.batch or _BATCH, micro_batch),
            micro_batch=micro_batch,
            projector=str(model.projector or ""),
            adapters=tuple(map(str, model.adapters)),
            embedding=embeds,
            pooling=facts.pooling if embeds else "",
            kv_cache_type=limits.kv_cache_type,
            flash_attention=flash_attention,
            use_mmap=self.use_mmap,
            gpu_layers=-1 if self.gpu_layers is None else self.gpu_layers,
            main_gpu=self.main_gpu or 0,
            prompt_cache_bytes=0
            if embeds
            else prompt_cache_bytes(facts, self.context_length * slots, limits.kv_cache_type),
        )


def embeds_only(model: TextModel) -> bool:
    """Whether the model makes vectors or scores and no text."""
    return "completion" not in model.capabilities


def wish_of(model: TextModel, options: Mapping[str, Any], limits: Limits) -> Wish:
    """What ``options`` and the parameters of the model's Modelfile want. Other options mean nothing here.

    The context is at least 4 tokens and at most what the model was trained for, as Ollama has it.
    Raises INVALID_ARG for a wrong type, NOT_FOUND when a file of the model is gone.
    """
    given = {**model.parameters, **{name: value for name, value in options.items() if value is not None}}
    context = _count(given, "num_ctx") or limits.context_length
    if model.facts.context_length:
        context = min(context, model.facts.context_length)
    counts = {name: _count(given, name) for name in _COUNTS}
    return Wish(
        model=model,
        stamp=stamp_of(model),
        context_length=max(context, _LEAST_CONTEXT),
        threads=_within(counts["num_thread"], _MOST_THREADS),
        batch=_within(counts["num_batch"], _MOST_BATCH),
        gpu_layers=_within(counts["num_gpu"], _MOST_LAYERS, least=0),
        main_gpu=_within(counts["main_gpu"], _MOST_DEVICES, least=0),
        use_mmap=_flag(given, "use_mmap"),
    )


def stamp_of(model: TextModel) -> Stamp:
    """The state of the model's files. Raises NOT_FOUND when one is gone."""
    files = [model.weights, *model.adapters, *([model.projector] if model.projector else [])]
    try:
        states = [file.stat() for file in files]
    except OSError as error:
        message = (
            f"model '{model.name.short}' not found: {error.filename} cannot be read ({error.strerror}). Pull it again"
        )
        raise ServeError(Code.NOT_FOUND, message) from error
    return tuple((state.st_ino, state.st_size, state.st_mtime_ns) for state in states)


def _count(given: Mapping[str, Any], name: str) -> int | None:
    value = given.get(name)
    if isinstance(value, float) and value.is_integer():  # JSON has one kind of number
        return int(value)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise invalid_arg(f'option "{name}" must be of type integer')
    return value


def _within(count: int | None, most: int, least: int = 1) -> int | None:
    """``count``, at most ``most``; below ``least`` it means "whatever is best", like none at all."""
    return None if count is None or count < least else min(count, most)


def _flag(given: Mapping[str, Any], name: str) -> bool | None:
    value = given.get(name)
    if value is not None and not isinstance(value, bool):
        raise invalid_arg(f'option "{name}" must be of type boolean')
    return value
