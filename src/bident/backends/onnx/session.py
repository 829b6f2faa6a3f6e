"""Builds ONNX Runtime sessions from :class:`SessionSettings`.

``onnxruntime`` is imported on first use: listing the backend, or failing early, does not pay for it.
"""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import Any

from bident.backends.onnx.faults import load_error
from bident.backends.onnx.settings import SessionSettings
from bident.errors import ConfigError

_LOG_FATAL = 4
"""Everything milder also comes as an exception, which we word ourselves."""

_OPENVINO = "OpenVINOExecutionProvider"


class _GlobalThreads:
    """The one thread pool that all sessions of this process share once it is switched on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started = False

    def start(self, ort: Any, intra_op_threads: int, inter_op_threads: int) -> None:
        """Must come before the process's first session; the first sizes given count.

        Raises ConfigError where onnxruntime is too old for it.
        """
        if not hasattr(ort, "set_global_thread_pool_sizes"):
            raise ConfigError(
                f"--backend-config onnxruntime, key 'enable-global-threadpool': onnxruntime {ort.__version__} has "
                f"none for Python; upgrade it, or leave the key out"
            )
        with self._lock:
            if not self._started:
                ort.set_global_thread_pool_sizes(intra_op_threads, inter_op_threads)
                self._started = True


_GLOBAL_THREADS = _GlobalThreads()


def open_session(name: str, path: Path, settings: SessionSettings, content: bytes | None = None) -> Any:
    """An ``onnxruntime.InferenceSession`` on the model in ``path``, or on its rewritten form ``content``.

    Raises ConfigError that says what is wrong with the file (or its declaration) and the cure.
    """
    import onnxruntime as ort

    providers = _providers(ort, name, settings)
    options = _options(ort, name, settings)
    if content is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(path.parent))
    model = str(path) if content is None else content
    try:
        # Without enable_fallback=0 a failure is printed and tried once more.
        return ort.InferenceSession(model, options, providers=providers, enable_fallback=0)
    except Exception as error:
        raise load_error(name, path, error, ort.__version__) from error


def probe_settings(settings: SessionSettings) -> SessionSettings:
    """The cheapest session that still knows the model's signature: nothing optimized, no threads."""
    return dataclasses.replace(
        settings,
        intra_op_threads=1,
        inter_op_threads=1,
        parallel=False,
        graph_level="ORT_DISABLE_ALL",
        prepack=False,
        accelerators=(),
    )


def run_options(settings: SessionSettings) -> Any:
    """``onnxruntime.RunOptions`` that all executions share; without them each would make its own (0.8 us)."""
    import onnxruntime as ort

    options = ort.RunOptions()
    if settings.arena_shrinkage:
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", settings.arena_shrinkage)
    return options


def _providers(ort: Any, name: str, settings: SessionSettings) -> list[Any]:
    cpu = "CPUExecutionProvider"
    if not settings.accelerators:
        return [cpu]
    if _OPENVINO not in ort.get_available_providers():
        raise ConfigError(
            f"unknown Execution Accelerator 'openvino' is requested: model '{name}' wants it, and the installed "
            f"onnxruntime {ort.__version__} comes without OpenVINO; install 'onnxruntime-openvino' in place of "
            f"'onnxruntime', or remove execution_accelerators from config.pbtxt"
        )
    return [(_OPENVINO, {"device_type": "CPU"}), cpu]


def _options(ort: Any, name: str, settings: SessionSettings) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = _LOG_FATAL
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, settings.graph_level)
    if settings.parallel:
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    options.enable_cpu_mem_arena = settings.memory_arena
    # ONNX Runtime plans memory for one order of execution only, and says so on stderr otherwise.
    options.enable_mem_pattern = settings.memory_pattern and not settings.parallel
    if settings.device_allocator_for_initializers:
        options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
    if not settings.prepack:
        options.add_session_config_entry("session.disable_prepacking", "1")
    _set_threads(ort, options, settings)
    for library in settings.operator_libraries:
        _register(options, name, library)
    return options


def _set_threads(ort: Any, options: Any, settings: SessionSettings) -> None:
    # A pool that spins keeps a core busy for some 40 ms after every execution, which the event loop
    # and the other models then lack; not spinning costs an idle machine about 7 % of a large model's
    # time, and on a busy one it is faster.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    if settings.global_threads:
        _GLOBAL_THREADS.start(ort, *settings.global_threads)
        options.use_per_session_threads = False
        return
    options.intra_op_num_threads = settings.intra_op_threads
    options.inter_op_num_threads = settings.inter_op_threads


def _register(options: Any, name: str, library: Path) -> None:
    try:
        options.register_custom_ops_library(str(library))
    except Exception as error:
        raise ConfigError(
            f"model '{name}', field model_operations.op_library_filename: {library} is not a library of custom "
            f"operators that this machine can load (it must export RegisterCustomOps): {error}"
        ) from error
