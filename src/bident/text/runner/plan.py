"""What a child is told to do. It travels as one line of JSON, so there are only plain values in it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

HTTP_SPARE = 6
"""Threads of a child's HTTP server beyond one for each slot."""


@dataclass(frozen=True)
class Plan:
    """How one model is loaded. Paths are absolute."""

    weights: str
    alias: str
    """The name by which llama.cpp's own answers call the model."""
    context_length: int
    """Tokens of one slot."""
    slots: int
    threads: int
    batch: int
    """Tokens of prompts that are worked through at once; answers of other slots go on in between."""
    micro_batch: int
    projector: str = ""
    adapters: tuple[str, ...] = ()
    embedding: bool = False
    pooling: str = ""
    """How the vectors of tokens become one: ``mean``, ``cls``, ``last``, or ``rank`` for a score."""
    kv_cache_type: str = "f16"
    flash_attention: bool | None = None
    use_mmap: bool | None = None
    gpu_layers: int = -1
    main_gpu: int = 0
    prompt_cache_bytes: int = 0
    """Memory for prompts that have lost their slot to another conversation."""

    @property
    def http_threads(self) -> int:
        return self.slots + HTTP_SPARE

    def dumps(self, key: str, parent: int) -> bytes:
        """The line for the child: the plan, the ``key`` it asks for, and the process id of its ``parent``."""
        return json.dumps({"plan": asdict(self), "key": key, "parent": parent}).encode() + b"\n"


def loads(line: bytes) -> tuple[Plan, str, int]:
    """The plan, key and parent that :meth:`Plan.dumps` wrote."""
    told = json.loads(line)
    plan = Plan(**{**told["plan"], "adapters": tuple(told["plan"]["adapters"])})
    return plan, str(told["key"]), int(told["parent"])
