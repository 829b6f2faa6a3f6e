"""Parameters of config.pbtxt and keys of --backend-config reach the session; bad ones are named."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import onnx_models as build
import onnxruntime as ort
import pytest

from bident.backends.base import BackendOptions, Device, ModelFiles
from bident.backends.onnx import OnnxBackend
from bident.backends.onnx import session as session_module
from bident.backends.onnx.modelfile import find_model_file
from bident.backends.onnx.session import open_session, run_options
from bident.backends.onnx.settings import SessionSettings, read_settings
from bident.errors import ConfigError

global_threads = pytest.mark.skipif(
    not hasattr(ort, "set_global_thread_pool_sizes"), reason="this onnxruntime has no global pool in Python"
)


@pytest.fixture
def files(tmp_path: Path) -> ModelFiles:
    return build.folder(tmp_path, build.matmul())


def parameter(key: str, value: str) -> str:
    return f' parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'


def settings_of(
    files: ModelFiles, text: str = "", threads: int = 1, own: dict[str, str] | None = None
) -> SessionSettings:
    declared = build.config(build.x_to_y() + text)
    return read_settings(files, declared, BackendOptions(own=own or {}), Device(threads=threads))


def options_of(files: ModelFiles, text: str = "", threads: int = 1, own: dict[str, str] | None = None) -> Any:
    """The options that ONNX Runtime has after a session was built with these settings."""
    settings = settings_of(files, text, threads, own)
    return open_session("m", find_model_file(files, build.config()), settings).get_session_options()


def test_threads_are_the_devices_unless_told_otherwise(files: ModelFiles) -> None:
    options = options_of(files, threads=2)
    assert options.intra_op_num_threads == 2
    assert options.inter_op_num_threads == 1


def test_thread_pools_do_not_spin(files: ModelFiles) -> None:
    options = options_of(files, threads=2)
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert options.get_session_config_entry("session.inter_op.allow_spinning") == "0"


def test_thread_counts_of_the_model(files: ModelFiles) -> None:
    text = parameter("intra_op_thread_count", "3") + parameter("inter_op_thread_count", "2")
    options = options_of(files, text, threads=1)
    assert options.intra_op_num_threads == 3
    assert options.inter_op_num_threads == 2


def test_thread_count_zero_is_onnx_runtimes_choice(files: ModelFiles) -> None:
    assert options_of(files, parameter("intra_op_thread_count", "0"), threads=2).intra_op_num_threads == 0


def test_thread_counts_of_the_backend_give_way_to_the_models(files: ModelFiles) -> None:
    own = {"intra_op_thread_count": "2", "inter_op_thread_count": "2"}
    assert options_of(files, own=own).intra_op_num_threads == 2
    assert options_of(files, own=own).inter_op_num_threads == 2
    assert options_of(files, parameter("intra_op_thread_count", "1"), own=own).intra_op_num_threads == 1


def test_execution_mode(files: ModelFiles) -> None:
    assert options_of(files).execution_mode == ort.ExecutionMode.ORT_SEQUENTIAL
    assert options_of(files, parameter("execution_mode", "0")).execution_mode == ort.ExecutionMode.ORT_SEQUENTIAL
    parallel = options_of(files, parameter("execution_mode", "1"), threads=2)
    assert parallel.execution_mode == ort.ExecutionMode.ORT_PARALLEL
    assert parallel.inter_op_num_threads == 2


@pytest.mark.parametrize(
    ("key", "field"), [("enable_mem_arena", "enable_cpu_mem_arena"), ("enable_mem_pattern", "enable_mem_pattern")]
)
@pytest.mark.parametrize(("word", "truth"), [("true", True), ("1", True), ("ON", True), ("False", False), ("0", False)])
def test_memory_switches(files: ModelFiles, key: str, field: str, word: str, truth: bool) -> None:
    assert getattr(options_of(files), field) is True
    assert getattr(options_of(files, parameter(key, word)), field) is truth


@pytest.mark.parametrize("value", ["1", "true"])
def test_device_allocator_for_initializers(files: ModelFiles, value: str) -> None:
    key = "session.use_device_allocator_for_initializers"
    assert options_of(files, parameter(key, value)).get_session_config_entry(key) == "1"


@pytest.mark.parametrize(
    ("level", "name"),
    [(0, "ORT_ENABLE_ALL"), (-1, "ORT_ENABLE_BASIC"), (1, "ORT_ENABLE_EXTENDED"), (2, "ORT_DISABLE_ALL")],
)
def test_graph_level(files: ModelFiles, level: int, name: str) -> None:
    text = f" optimization {{ graph {{ level: {level} }} }}"
    assert options_of(files, text).graph_optimization_level == getattr(ort.GraphOptimizationLevel, name)
    assert options_of(files).graph_optimization_level == ort.GraphOptimizationLevel.ORT_ENABLE_ALL


def test_arena_shrinkage_is_asked_of_each_run(files: ModelFiles) -> None:
    key = "memory.enable_memory_arena_shrinkage"
    text = parameter(key, "cpu:0")
    assert run_options(settings_of(files, text)).get_run_config_entry(key) == "cpu:0"
    with pytest.raises(RuntimeError, match=key):
        run_options(settings_of(files)).get_run_config_entry(key)
    instance = build.load(files, build.config(build.x_to_y() + text))
    assert instance.execute({"x": np.ones((1, 3), np.float32)})["y"].tolist() == [[2.0, 2.0, 2.0]]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (parameter("intra_op_thread_count", "many"), "'intra_op_thread_count': 'many' is not allowed; use a whole"),
        (parameter("intra_op_thread_count", "-1"), "'intra_op_thread_count': '-1' is not allowed"),
        (parameter("intra_op_thread_count", "1000000"), "to 256|to [0-9]+"),
        (parameter("inter_op_thread_count", "1.5"), "'inter_op_thread_count': '1.5' is not allowed"),
        (parameter("execution_mode", "2"), "'execution_mode': '2' is not allowed; use 0 .sequential. or 1 .parallel."),
        (parameter("enable_mem_arena", "yes"), "'enable_mem_arena': 'yes' is not allowed; use one of true, on, 1"),
        (parameter("enable_mem_pattern", ""), "'enable_mem_pattern': '' is not allowed"),
        (parameter("memory.enable_memory_arena_shrinkage", "gpu:0"), "'gpu:0' is not allowed; use cpu:0"),
        (
            parameter("memory.enable_memory_arena_shrinkage", "cpu:0") + parameter("enable_mem_arena", "0"),
            "only with enable_mem_arena true",
        ),
        (parameter("session.use_device_allocator_for_initializers", "banana"), "initializers': 'banana' is not"),
        (parameter("share_session_between_instances", "2"), "'share_session_between_instances': '2' is not allowed"),
        (" optimization { graph { level: 7 } }", "field optimization.graph.level: 7 is not allowed; use 0"),
    ],
)
def test_bad_values_name_the_parameter_and_what_it_may_be(files: ModelFiles, text: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named) as failure:
        build.load(files, build.config(build.x_to_y() + text))
    assert "model 'm'" in failure.value.message


@pytest.mark.parametrize("key", ["intra_op_thread_count", "inter_op_thread_count", "enable-global-threadpool"])
def test_bad_backend_settings_name_the_key(files: ModelFiles, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"--backend-config onnxruntime, key '{key}': 'x' is not allowed"):
        build.load(files, build.config(build.x_to_y()), own={key: "x"})


def test_unknown_parameters_are_ignored_with_one_warning(files: ModelFiles, caplog: pytest.LogCaptureFixture) -> None:
    text = (
        parameter("intra_op_threads", "x")
        + parameter("gpu_mem_limit", "5")
        + parameter("colour", "blue")
        + parameter("LANE", "inline")
    )
    text += " optimization { execution_accelerators { gpu_execution_accelerator { name: 'tensorrt' } } }"
    backend = OnnxBackend(BackendOptions(own={"default-max-batch": "4"}))
    with caplog.at_level(logging.WARNING, "bident.onnx"):
        for _ in range(2):
            assert backend.load(files, build.config(build.x_to_y() + text), Device())
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 5
    everything = "\n".join(messages)
    assert "unknown parameter 'intra_op_threads' is ignored; did you mean 'intra_op_thread_count'?" in everything
    assert "parameter 'gpu_mem_limit' is for GPUs" in everything
    assert "unknown parameter 'colour' is ignored (known: intra_op_thread_count" in everything
    assert "GPU execution accelerator 'tensorrt' has no effect" in everything
    assert "unknown key 'default-max-batch' is ignored; did you mean 'default-max-batch-size'?" in everything


def accelerated(name: str) -> str:
    return f' optimization {{ execution_accelerators {{ cpu_execution_accelerator {{ name: "{name}" }} }} }}'


def test_unknown_accelerator(files: ModelFiles) -> None:
    with pytest.raises(ConfigError, match=r"^unknown Execution Accelerator 'x' is requested.*'openvino'"):
        build.load(files, build.config(build.x_to_y() + accelerated("x")))


@pytest.mark.skipif("OpenVINOExecutionProvider" in ort.get_available_providers(), reason="it is installed here")
def test_openvino_that_is_not_installed(files: ModelFiles) -> None:
    with pytest.raises(
        ConfigError, match=r"^unknown Execution Accelerator 'openvino' is requested.*onnxruntime-openvino"
    ):
        build.load(files, build.config(build.x_to_y() + accelerated("openvino")))


def test_openvino_that_is_installed(files: ModelFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["OpenVINOExecutionProvider", "CPUExecutionProvider"])
    monkeypatch.setattr(ort, "InferenceSession", lambda _model, _options, **rest: asked.update(rest))
    open_session("m", find_model_file(files, build.config()), settings_of(files, accelerated("openvino")))
    assert asked["providers"] == [("OpenVINOExecutionProvider", {"device_type": "CPU"}), "CPUExecutionProvider"]


def operations(name: str) -> str:
    return f' model_operations {{ op_library_filename: "{name}" }}'


def test_operator_library_that_is_nowhere(files: ModelFiles) -> None:
    with pytest.raises(ConfigError, match=r"op_library_filename: there is no 'ops.so'; looked for .*ops.so"):
        build.load(files, build.config(build.x_to_y() + operations("ops.so")))


@pytest.mark.parametrize("place", ["version", "model", "absolute"])
def test_operator_library_that_is_none(files: ModelFiles, tmp_path: Path, place: str) -> None:
    folder = {"version": files.version_directory, "model": files.directory, "absolute": tmp_path}[place]
    (folder / "ops.so").write_bytes(b"no library")
    name = str(folder / "ops.so") if place == "absolute" else "ops.so"
    with pytest.raises(ConfigError, match=r"ops.so is not a library of custom operators.*RegisterCustomOps"):
        build.load(files, build.config(build.x_to_y() + operations(name)))


def test_operator_library_is_registered(files: ModelFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    library = files.version_directory / "ops.so"
    library.write_bytes(b"")
    registered: list[str] = []

    class Options(ort.SessionOptions):  # type: ignore[misc]
        def register_custom_ops_library(self, path: str) -> None:
            registered.append(path)

    monkeypatch.setattr(ort, "SessionOptions", Options)
    assert build.load(files, build.config(build.x_to_y() + operations("ops.so")))
    assert registered == [str(library)]


def test_instances_share_a_session_when_asked(files: ModelFiles) -> None:
    backend = OnnxBackend()
    text = build.x_to_y() + parameter("share_session_between_instances", "true")
    first, second = (backend.load(files, build.config(text), Device()) for _ in range(2))
    assert first._session is second._session  # type: ignore[attr-defined]
    alone = backend.load(files, build.config(build.x_to_y()), Device())
    assert alone._session is not first._session  # type: ignore[attr-defined]
    build.folder(files.directory.parent, build.matmul(("batch", 3)))
    renewed = backend.load(files, build.config(text), Device())
    assert renewed._session is not first._session  # type: ignore[attr-defined]


def test_shared_session_survives_the_close_of_one_instance(files: ModelFiles) -> None:
    backend = OnnxBackend()
    text = build.x_to_y() + parameter("share_session_between_instances", "true")
    first, second = (backend.load(files, build.config(text), Device()) for _ in range(2))
    first.close()
    assert second.execute({"x": np.ones((1, 3), np.float32)})["y"].tolist() == [[2.0, 2.0, 2.0]]


def test_global_thread_pool_that_onnxruntime_lacks(files: ModelFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ort, "set_global_thread_pool_sizes", raising=False)
    with pytest.raises(ConfigError, match=r"'enable-global-threadpool': onnxruntime .* has none for Python; upgrade"):
        build.load(files, build.config(build.x_to_y()), own={"enable-global-threadpool": "1"})


@global_threads
def test_global_thread_pool(files: ModelFiles) -> None:
    """In a process of its own: the pool is a decision for the whole process."""
    program = f"""
        import sys
        sys.path.insert(0, {str(Path(build.__file__).parent)!r})
        import numpy as np, onnx_models as build
        from pathlib import Path
        from bident.backends.base import BackendOptions, Device, ModelFiles
        from bident.backends.onnx import OnnxBackend
        own = {{"enable-global-threadpool": "1", "intra_op_thread_count": "2", "inter_op_thread_count": "1"}}
        backend = OnnxBackend(BackendOptions(own=own))
        files = ModelFiles(Path({str(files.directory)!r}), 1)
        done = backend.complete(files, build.config())
        instance = backend.load(files, done, Device(threads=2))
        options = instance._session.get_session_options()
        print(options.use_per_session_threads, instance.execute({{"x": np.ones((1, 3), np.float32)}})["y"].tolist())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.strip() == "False [[2.0, 2.0, 2.0]]", done.stderr


@global_threads
def test_global_thread_pool_starts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(ort, "set_global_thread_pool_sizes", lambda *sizes: calls.append(sizes))
    pool = session_module._GlobalThreads()
    pool.start(ort, 2, 1)
    pool.start(ort, 4, 4)
    assert calls == [(2, 1)]


def test_onnx_and_onnxruntime_are_imported_only_when_needed(files: ModelFiles) -> None:
    program = f"""
        import sys
        from pathlib import Path
        from bident.backends.base import Device, ModelFiles
        from bident.backends.onnx import OnnxBackend
        from bident.model.config import ModelConfig
        from bident.model.proto import pb
        backend = OnnxBackend()
        before = "onnxruntime" in sys.modules or "onnx" in sys.modules
        files = ModelFiles(Path({str(files.directory)!r}), 1)
        done = backend.complete(files, ModelConfig.from_proto(pb.ModelConfig(name="m", backend="onnxruntime")))
        backend.load(files, done, Device())
        print(before, "onnx" in sys.modules)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.strip() == "False False", done.stderr
