"""One model, served by llama.cpp in a process of its own: ``python -m bident.text.runner.child``.

The first line of its standard input is a plan (``plan.Plan``); the only line on its standard output says where
it listens, ``{"address": "http://127.0.0.1:41234"}``, or why it does not. It ends with its standard input.
What llama.cpp prints goes to standard error.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from bident.text.runner.plan import Plan, loads

if TYPE_CHECKING:
    import xllamacpp  # type: ignore[import-untyped]

EXIT_UNABLE = 70
"""It said on standard output why it cannot serve."""

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9
_TELLING = 3
"""Warnings, errors and what it is at: by that its parent knows how far it has come. No prompt, no answer."""
_BYTES_PER_MIB = 1 << 20
_CHECKPOINTS = 2
"""Copies of a sliding window's state for each slot; each may be as large as the window's cache."""


def main() -> NoReturn:
    """Serve until standard input ends."""
    saying = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever prints to standard output does not garble the one line there
    plan, key, parent = loads(sys.stdin.buffer.readline())
    _die_with(parent)
    _be_modest()
    threading.Thread(target=_await_end, daemon=True).start()
    try:
        server = _serve(plan, key)
    except ImportError as error:
        _give_up(saying, "missing", error)
    except Exception as error:  # noqa: BLE001 - whatever llama.cpp raises, its parent tells the reason
        _give_up(saying, "failed", error)
    with saying:
        saying.write(json.dumps({"address": server.listening_address}) + "\n")
    while True:  # the server's threads do the work, and ``server`` must live
        time.sleep(3600)


def _serve(plan: Plan, key: str) -> xllamacpp.Server:
    """A listening server with the model loaded."""
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    for name, value in _settings(plan).items():
        setattr(parameters, name, value)
    parameters.model.path = plan.weights
    parameters.mmproj.path = plan.projector
    parameters.cpuparams.n_threads = plan.threads
    parameters.cpuparams_batch.n_threads = plan.threads
    parameters.api_keys = [key]
    parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type[f"GGML_TYPE_{plan.kv_cache_type.upper()}"]
    if plan.flash_attention is not None:
        parameters.flash_attn_type = xllamacpp.llama_flash_attn_type(int(plan.flash_attention))
    if plan.use_mmap is not None:
        parameters.load_mode = xllamacpp.llama_load_mode(int(plan.use_mmap))
    if plan.pooling:
        parameters.pooling_type = xllamacpp.llama_pooling_type[f"LLAMA_POOLING_TYPE_{plan.pooling.upper()}"]
    if plan.adapters:
        parameters.lora_adapters = [_adapter(path) for path in plan.adapters]
    return xllamacpp.Server(parameters)


def _settings(plan: Plan) -> dict[str, Any]:
    """Parameters of llama.cpp that are set by name alone.

    Each slot has a cache of its own (no ``kv_unified``): with a cache in common one long conversation makes the
    answers of all others fail when it fills up, and reading is slower (measured: 4 slots at 800 tokens, by 1.5).
    ``fit_params`` is off because the parent has measured what fits.
    """
    return {
        "n_ctx": plan.context_length * plan.slots,
        "n_parallel": plan.slots,
        "n_batch": plan.batch,
        "n_ubatch": plan.micro_batch,
        "n_gpu_layers": plan.gpu_layers,
        "main_gpu": plan.main_gpu,
        "n_threads_http": plan.http_threads,
        "cache_ram_mib": plan.prompt_cache_bytes // _BYTES_PER_MIB,
        "n_ctx_checkpoints": _CHECKPOINTS,
        "model_alias": {plan.alias},
        "embedding": plan.embedding,
        "kv_unified": False,
        "fit_params": False,
        "warmup": False,
        "ui": False,
        "endpoint_props": True,
        "verbosity": _TELLING,
    }


def _adapter(path: str) -> xllamacpp.CommonAdapterLoraInfo:
    import xllamacpp

    adapter = xllamacpp.CommonAdapterLoraInfo()
    adapter.path, adapter.scale = path, 1.0
    return adapter


def _give_up(saying: Any, kind: str, error: Exception) -> NoReturn:
    with saying:
        saying.write(json.dumps({kind: str(error)[:2000]}) + "\n")
    sys.exit(EXIT_UNABLE)  # in good order: llama.cpp's log, which says why, is written by a thread of its own


def _await_end() -> None:
    """End at once when the parent closes its end, or is gone."""
    with contextlib.suppress(OSError):
        while os.read(0, 4096):  # unbuffered: a buffer's lock, held while waiting, would spoil the interpreter's end
            pass
    os._exit(0)


def _die_with(parent: int) -> None:
    """Have the kernel end this process with its parent, in case it could not notice the end of its input."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, _SIGKILL)
        if os.getppid() != parent:  # it was too late for that
            os._exit(0)


def _be_modest() -> None:
    """If memory runs out, this process goes first, not its parent; and it leaves no image of gigabytes behind."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")
    if sys.platform != "win32":
        import resource

        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
