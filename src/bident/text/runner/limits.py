"""How much the models may take, and how long anyone waits for them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Durations are seconds. The defaults are Ollama's, but for ``slots``: see ``NUM_PARALLEL`` in its FAQ."""

    context_length: int = 4096
    """Tokens of one request where neither it nor the model's Modelfile says ``num_ctx``."""
    keep_alive: float = 300.0
    slots: int = 4
    """Requests that a model answers at once, memory permitting. A model that embeds has one."""
    max_loaded: int = 0
    """Models loaded at once; 0 for as many as the memory holds."""
    max_queue: int = 512
    """Requests that may wait for one model; more are refused."""
    load_seconds: float = 300.0
    """How long loading may take; 0 or infinite for as long as it does."""
    threads: int = 0
    """Threads for all models together; 0 for one less than the usable cores."""
    kv_cache_type: str = "f16"
    """``f16``, ``q8_0`` or ``q4_0``."""
    flash_attention: bool | None = None
    """None leaves it to llama.cpp."""
    memory: int = 0
    """Bytes for all models together; 0 for what the machine has."""
    memory_reserve: int = 256 << 20
    """Bytes of the available memory that are left alone."""
    pulse_seconds: float = 5.0
    """How often a process at work is asked whether it still lives."""
    hang_seconds: float = 30.0
    """How long it may take to answer that before it is ended."""
    crash_limit: int = 3
    """A model that crashes so often within ``crash_window`` is not started again until that is over."""
    crash_window: float = 300.0
    backoff_seconds: float = 1.0
    """Wait before the second restart within ``crash_window``, doubled with each further one; the first is at once."""
