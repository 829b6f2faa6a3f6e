"""Auto-complete follows Triton's rules."""

from __future__ import annotations

from pathlib import Path

import onnx_models as build
import pytest
from onnx import TensorProto

from bident.backends.onnx import OnnxBackend
from bident.errors import ConfigError
from bident.model.config import ModelConfig
from bident.wire.datatypes import DATATYPES


def shapes(declared: ModelConfig) -> dict[str, tuple[str, tuple[int, ...]]]:
    both = {**declared.inputs, **declared.outputs}
    return {name: (spec.datatype.name, spec.dims) for name, spec in both.items()}


def test_everything_from_the_model(tmp_path: Path) -> None:
    done = build.complete(build.folder(tmp_path, build.identity()), build.config())
    assert shapes(done) == {"x": ("FP32", (3,)), "y": ("FP32", (3,))}
    assert done.max_batch_size == 4
    assert done.dynamic_batching is not None
    assert list(done.dynamic_batching.preferred_batch_sizes) == []


def test_the_completed_config_loads(tmp_path: Path) -> None:
    files = build.folder(tmp_path, build.add())
    assert build.load(files, build.complete(files, build.config()))


@pytest.mark.parametrize("datatype", list(DATATYPES))
def test_datatypes(tmp_path: Path, datatype: str) -> None:
    done = build.complete(build.folder(tmp_path, build.identity(datatype)), build.config())
    assert shapes(done) == {"x": (datatype, (3,)), "y": (datatype, (3,))}


def test_skipped_without_opening_the_file_when_both_sides_are_declared(tmp_path: Path) -> None:
    files = build.folder(tmp_path, b"not a model")
    declared = build.config(build.x_to_y("[ 99 ]", 0))
    assert build.complete(files, declared) is declared


@pytest.mark.parametrize("kept", ["input", "output"])
def test_only_the_missing_side_is_filled(tmp_path: Path, kept: str) -> None:
    own = build.tensors(kept, ("kept", "INT8", "[ 9 ]"))
    done = build.complete(build.folder(tmp_path, build.identity()), build.config(own))
    filled = {"y": ("FP32", (3,))} if kept == "input" else {"x": ("FP32", (3,))}
    assert shapes(done) == {"kept": ("INT8", (9,)), **filled}
    assert done.max_batch_size == 4


def test_symbolic_dimensions_become_free(tmp_path: Path) -> None:
    done = build.complete(build.folder(tmp_path, build.identity("FP32", ["N", "height", None, 3])), build.config())
    assert shapes(done)["x"] == ("FP32", (-1, -1, 3))


def test_explicit_batch_size_is_kept(tmp_path: Path) -> None:
    done = build.complete(build.folder(tmp_path, build.identity()), build.config("max_batch_size: 77"))
    assert done.max_batch_size == 77
    assert done.dynamic_batching is not None


def test_batch_size_one_gets_no_scheduler(tmp_path: Path) -> None:
    done = build.complete(build.folder(tmp_path, build.identity()), build.config("max_batch_size: 1"))
    assert done.max_batch_size == 1
    assert done.dynamic_batching is None


@pytest.mark.parametrize(("value", "size"), [("9", 9), ("1", 1), ("0", 0)])
def test_default_batch_size_is_a_backend_setting(tmp_path: Path, value: str, size: int) -> None:
    files = build.folder(tmp_path, build.identity())
    done = build.complete(files, build.config(), own={"default-max-batch-size": value})
    assert done.max_batch_size == size
    assert (done.dynamic_batching is not None) == (size > 1)
    assert shapes(done)["x"] == ("FP32", (3,) if size else (-1, 3))


def test_default_batch_size_that_is_no_number(tmp_path: Path) -> None:
    files = build.folder(tmp_path, build.identity())
    with pytest.raises(ConfigError, match=r"'default-max-batch-size'.*whole number"):
        build.complete(files, build.config(), own={"default-max-batch-size": "many"})


def test_a_scheduler_that_is_there_stays(tmp_path: Path) -> None:
    files = build.folder(tmp_path, build.identity())
    done = build.complete(files, build.config("sequence_batching { max_sequence_idle_microseconds: 5 }"))
    assert done.proto.WhichOneof("scheduling_choice") == "sequence_batching"
    done = build.complete(files, build.config("dynamic_batching { max_queue_delay_microseconds: 7 }"))
    assert done.dynamic_batching is not None
    assert done.dynamic_batching.max_queue_delay_us == 7


@pytest.mark.parametrize("fixed", ["left", "right"])
def test_one_fixed_first_dimension_means_no_batching(tmp_path: Path, fixed: str) -> None:
    network = build.add(**{fixed: [1, 2]})
    done = build.complete(build.folder(tmp_path, network), build.config())
    assert done.max_batch_size == 0
    assert done.dynamic_batching is None
    assert shapes(done)[fixed] == ("FP32", (1, 2))
    assert shapes(done)["right" if fixed == "left" else "left"] == ("FP32", (-1, 2))


def test_batching_asked_of_a_model_that_cannot(tmp_path: Path) -> None:
    files = build.folder(tmp_path, build.identity("FP32", [1, 3]))
    with pytest.raises(ConfigError) as failure:
        build.complete(files, build.config("max_batch_size: 8"))
    assert failure.value.message.startswith(
        "autofill failed for model 'm': model does not support batching while non-zero max_batch_size is specified"
    )
    assert "'x' FP32 [1,3]" in failure.value.message
    assert "dynamic batch axis" in failure.value.message


def test_one_number_per_row_gets_dims_1_and_a_reshape(tmp_path: Path) -> None:
    done = build.complete(build.folder(tmp_path, build.identity("INT64", ["N"])), build.config())
    for spec in (done.inputs["x"], done.outputs["y"]):
        assert spec.dims == (1,)
        assert spec.reshape == ()


def test_scalar_without_batching_gets_dims_1_and_no_reshape(tmp_path: Path) -> None:
    files = build.folder(tmp_path, build.identity("INT64", []))
    done = build.complete(files, build.config())
    assert done.max_batch_size == 0
    assert done.inputs["x"].dims == (1,)
    assert done.inputs["x"].reshape is None
    assert build.load(files, done)


def test_initializers_are_not_filled_in(tmp_path: Path) -> None:
    network = build.model(
        [build.value("x", TensorProto.FLOAT, ["N", 3]), build.value("w", TensorProto.FLOAT, [3])],
        [build.value("y", TensorProto.FLOAT, ["N", 3])],
        [build.node("Add", ["x", "w"], ["y"])],
        build.weight("w", build.np.ones(3, build.np.float32)),
    )
    done = build.complete(build.folder(tmp_path, network), build.config())
    assert list(done.inputs) == ["x"]
    assert done.max_batch_size == 4


def test_sequence_output_cannot_be_filled_in(tmp_path: Path) -> None:
    network = build.model(
        [build.value("x", TensorProto.FLOAT, ["N", 3])],
        [build.onnx.helper.make_tensor_sequence_value_info("parts", TensorProto.FLOAT, ["N", 3])],
        [build.node("SequenceConstruct", ["x"], ["parts"])],
    )
    files = build.folder(tmp_path, network)
    with pytest.raises(ConfigError, match=r"Unsupported ONNX Type 'ONNX_TYPE_SEQUENCE' for output 'parts'"):
        build.complete(files, build.config())


def test_order_is_the_models(tmp_path: Path) -> None:
    done = build.complete(build.folder(tmp_path, build.add()), build.config())
    assert list(done.inputs) == ["left", "right"]
    assert list(done.outputs) == ["sum", "difference"]


def test_facts_of_the_backend() -> None:
    assert OnnxBackend.name == "onnxruntime"
    assert OnnxBackend.default_instance_count == 2
