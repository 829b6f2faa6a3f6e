"""How much memory a model takes, reckoned from its header before it is loaded.

Measured against llama.cpp (SmolLM2-135M; 1 to 16 thousand tokens of cache in f16 and q8_0), the sums below are within
30 MiB. A sliding window makes the real cache smaller; what that saves, llama.cpp's checkpoints of it may take.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bident.text.gguf import GgufFacts
from bident.text.model import TextModel
from bident.text.runner.plan import Plan

BYTES_PER_VALUE = {"f32": 4.0, "f16": 2.0, "bf16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}
"""By the type of the cache; the quantised types have a scale for each 32 values."""

_PROCESS = 64 << 20
"""The interpreter and the code of llama.cpp."""
_FLOAT = 4
_GIB = 1 << 30
_PROMPT_CACHE_LIMIT = 512 << 20


@dataclass(frozen=True)
class Need:
    """Bytes."""

    weights: int
    cache: int
    working: int
    """Of the computation, the prompts kept aside, and the process itself."""

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.working


def need_of(model: TextModel, plan: Plan) -> Need:
    """What ``model`` takes when it is loaded as ``plan`` says. Raises OSError when a file of it is missing."""
    files = [Path(plan.weights), *map(Path, plan.adapters)]
    if plan.projector:
        files.append(Path(plan.projector))
    return Need(
        weights=sum(file.stat().st_size for file in files),
        cache=cache_bytes(model.facts, plan.context_length * plan.slots, plan.kv_cache_type),
        working=_PROCESS + plan.prompt_cache_bytes + _activations(model.facts, plan),
    )


def cache_bytes(facts: GgufFacts, tokens: int, kind: str) -> int:
    """Keys and values of ``tokens``, for all heads of all blocks."""
    values = facts.kv_heads * (facts.key_length + facts.value_length)
    return int(values * BYTES_PER_VALUE[kind]) * tokens


def prompt_cache_bytes(facts: GgufFacts, tokens: int, kind: str) -> int:
    """How much the prompts without a slot may take: half of what those with one may, within bounds."""
    return min(cache_bytes(facts, tokens, kind) // 2, _PROMPT_CACHE_LIMIT)


def refusal(need: Need, available: int, plan: Plan) -> str:
    """Ollama's words for a model that does not fit, and where the memory would go."""
    return (
        f"model requires more system memory ({_gib(need.total)}) than is available ({_gib(available)}): "
        f"{_gib(need.weights)} of weights, {_gib(need.cache)} for a context of {plan.context_length} tokens, "
        f"{_gib(need.working)} to work with. Ask for a smaller num_ctx, take a smaller quantization, "
        f"or stop other programs"
    )


def _activations(facts: GgufFacts, plan: Plan) -> int:
    of_a_token = 4 * facts.embedding_length + 3 * facts.feed_forward_length
    return _FLOAT * (plan.micro_batch * of_a_token + plan.slots * facts.vocabulary_size)


def _gib(count: int) -> str:
    return f"{max(count, 0) / _GIB:.1f} GiB"
