"""Reads what config.pbtxt and ``--backend-config`` say about a session into :class:`SessionSettings`."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bident.backends.base import BackendOptions, Device, ModelFiles
from bident.errors import ConfigError
from bident.model.config import ModelConfig
from bident.model.parameters import OWN_PARAMETERS
from bident.settings.values import TRUTH

_Choice = TypeVar("_Choice")

_GRAPH_LEVELS = {0: "ORT_ENABLE_ALL", -1: "ORT_ENABLE_BASIC", 1: "ORT_ENABLE_EXTENDED", 2: "ORT_DISABLE_ALL"}
_MOST_THREADS = max(256, os.cpu_count() or 1)
"""More than this only wastes memory and, at some thousands, minutes of start-up."""

PARAMETERS = (
    "intra_op_thread_count",
    "inter_op_thread_count",
    "execution_mode",
    "enable_mem_arena",
    "enable_mem_pattern",
    "memory.enable_memory_arena_shrinkage",
    "session.use_device_allocator_for_initializers",
    "share_session_between_instances",
)
"""What ``parameters`` in config.pbtxt may hold for this backend."""

_GPU_PARAMETERS = ("cudnn_conv_algo_search", "gpu_mem_limit", "arena_extend_strategy", "do_copy_in_default_stream")

_BACKEND_KEYS = (
    "enable-global-threadpool",
    "intra_op_thread_count",
    "inter_op_thread_count",
    "default-max-batch-size",
)


@dataclass(frozen=True)
class SessionSettings:
    """How to build one session.

    Thread counts: 0 is ONNX Runtime's own choice (one per core), 1 is no pool. ``global_threads`` are
    the intra- and inter-op counts of the pool that all sessions share, if they are to share one.
    """

    intra_op_threads: int
    inter_op_threads: int
    parallel: bool = False
    graph_level: str = "ORT_ENABLE_ALL"
    memory_arena: bool = True
    memory_pattern: bool = True
    arena_shrinkage: str = ""
    device_allocator_for_initializers: bool = False
    shared: bool = False
    global_threads: tuple[int, int] | None = None
    accelerators: tuple[str, ...] = ()
    operator_libraries: tuple[Path, ...] = ()
    prepack: bool = True


def read_settings(files: ModelFiles, config: ModelConfig, options: BackendOptions, device: Device) -> SessionSettings:
    """The settings of ``config``, else of ``--backend-config``, else what suits ``device``.

    Raises ConfigError that names the parameter and what it may be.
    """
    model = _Reader(f"model '{config.name}', parameter", config.parameters)
    backend = _Reader("--backend-config onnxruntime, key", options.own)
    parallel = bool(model.number("execution_mode", 0, 0, 1, "0 (sequential) or 1 (parallel)"))
    threads = max(1, device.threads)
    intra = backend.threads("intra_op_thread_count", threads)
    inter = backend.threads("inter_op_thread_count", threads if parallel else 1)
    arena = model.truth("enable_mem_arena", True)
    return SessionSettings(
        intra_op_threads=model.threads("intra_op_thread_count", intra),
        inter_op_threads=model.threads("inter_op_thread_count", inter),
        parallel=parallel,
        graph_level=_graph_level(config),
        memory_arena=arena,
        memory_pattern=model.truth("enable_mem_pattern", True),
        arena_shrinkage=_arena_shrinkage(model, arena),
        device_allocator_for_initializers=model.truth("session.use_device_allocator_for_initializers", False),
        shared=model.truth("share_session_between_instances", False),
        global_threads=_global_threads(backend),
        accelerators=_accelerators(config),
        operator_libraries=_operator_libraries(files, config),
    )


def default_max_batch_size(options: BackendOptions) -> int:
    """``default-max-batch-size`` of ``--backend-config``; ConfigError if it is no number."""
    try:
        return options.default_max_batch_size
    except ValueError as error:
        raise ConfigError(
            f"--backend-config, key 'default-max-batch-size': {error}; use a whole number from 0 (no batching)"
        ) from error


def ignored_settings(config: ModelConfig, options: BackendOptions) -> list[str]:
    """A warning for each parameter that has no effect here, with the one that may have been meant."""
    notes = []
    for name in config.parameters:
        if name in _GPU_PARAMETERS:
            notes.append(f"model '{config.name}': parameter '{name}' is for GPUs and has no effect on the CPU")
        elif name not in PARAMETERS and name not in OWN_PARAMETERS:
            notes.append(f"model '{config.name}': unknown parameter '{name}' is ignored{_meant(name, PARAMETERS)}")
    for accelerator in config.proto.optimization.execution_accelerators.gpu_execution_accelerator:
        notes.append(f"model '{config.name}': GPU execution accelerator '{accelerator.name}' has no effect on the CPU")
    for key in options.own:
        if key not in _BACKEND_KEYS:
            notes.append(f"--backend-config onnxruntime: unknown key '{key}' is ignored{_meant(key, _BACKEND_KEYS)}")
    return notes


class _Reader:
    """Typed reading of string settings; errors say where the setting stands and what it may be."""

    def __init__(self, where: str, values: dict[str, str]) -> None:
        self._where = where
        self._values = values

    def text(self, key: str) -> str | None:
        return self._values.get(key)

    def number(self, key: str, default: int, low: int, high: int, allowed: str) -> int:
        text = self._values.get(key)
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            raise self.error(key, allowed) from None
        if not low <= value <= high:
            raise self.error(key, allowed)
        return value

    def threads(self, key: str, default: int) -> int:
        allowed = f"a whole number from 0 (one thread per core) to {_MOST_THREADS}"
        return self.number(key, default, 0, _MOST_THREADS, allowed)

    def truth(self, key: str, default: bool) -> bool:
        text = self._values.get(key)
        if text is None:
            return default
        value = TRUTH.get(text.strip().lower())
        if value is None:
            raise self.error(key, "one of true, on, 1, false, off, 0")
        return value

    def error(self, key: str, allowed: str) -> ConfigError:
        return ConfigError(f"{self._where} '{key}': '{self._values[key]}' is not allowed; use {allowed}")


def _meant(name: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean '{near[0]}'?" if near else f" (known: {', '.join(known)})"


def _global_threads(backend: _Reader) -> tuple[int, int] | None:
    if not backend.truth("enable-global-threadpool", False):
        return None
    return backend.threads("intra_op_thread_count", 0), backend.threads("inter_op_thread_count", 0)


def _graph_level(config: ModelConfig) -> str:
    level = config.proto.optimization.graph.level
    if level not in _GRAPH_LEVELS:
        raise ConfigError(
            f"model '{config.name}', field optimization.graph.level: {level} is not allowed; use 0 (all optimizations)"
            f", 1 (extended), -1 (basic) or 2 (none)"
        )
    return _GRAPH_LEVELS[level]


def _arena_shrinkage(model: _Reader, arena: bool) -> str:
    key = "memory.enable_memory_arena_shrinkage"
    value = model.text(key)
    if not value:
        return ""
    if value not in ("cpu", "cpu:0"):
        raise model.error(key, "cpu:0 (this backend runs on the CPU only)")
    if not arena:
        raise model.error(key, "it only with enable_mem_arena true: without an arena there is nothing to shrink")
    return value


def _accelerators(config: ModelConfig) -> tuple[str, ...]:
    names = [item.name for item in config.proto.optimization.execution_accelerators.cpu_execution_accelerator]
    for name in names:
        if name != "openvino":
            raise ConfigError(
                f"unknown Execution Accelerator '{name}' is requested: model '{config.name}' may name 'openvino' as "
                f"its cpu_execution_accelerator, or none"
            )
    return tuple(names)


def _operator_libraries(files: ModelFiles, config: ModelConfig) -> tuple[Path, ...]:
    return tuple(_operator_library(files, config, name) for name in config.proto.model_operations.op_library_filename)


def _operator_library(files: ModelFiles, config: ModelConfig, name: str) -> Path:
    """Triton takes the path as it stands; the model's own folders are tried first, so a model can bring it along."""
    places = [files.version_directory / name, files.directory / name, Path(name).absolute()]
    for place in places:
        if place.is_file():
            return place
    raise ConfigError(
        f"model '{config.name}', field model_operations.op_library_filename: there is no '{name}'; looked for "
        f"{', '.join(str(place) for place in dict.fromkeys(places))}"
    )
