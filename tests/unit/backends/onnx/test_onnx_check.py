"""What config.pbtxt says is compared with the model file when it loads."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx_models as build
import pytest
from onnx import ModelProto, TensorProto

from bident.errors import ConfigError

FP32 = TensorProto.FLOAT


def refusal(directory: Path, network: ModelProto, text: str) -> str:
    with pytest.raises(ConfigError) as failure:
        build.load(build.folder(directory, network), build.config(text))
    return failure.value.message


def sums(*inputs: tuple[str, str, str], batch: int = 4) -> str:
    """A declaration for :func:`build.add` with these inputs and the right output."""
    return (
        f"max_batch_size: {batch}" + build.tensors("input", *inputs) + build.tensors("output", ("sum", "FP32", "[ 2 ]"))
    )


LEFT, RIGHT = ("left", "FP32", "[ 2 ]"), ("right", "FP32", "[ 2 ]")


def test_a_subset_of_the_outputs_may_be_declared(tmp_path: Path) -> None:
    instance = build.load(build.folder(tmp_path, build.add()), build.config(sums(LEFT, RIGHT)))
    ones = np.ones((1, 2), np.float32)
    assert {name: array.tolist() for name, array in instance.execute({"left": ones, "right": ones}).items()} == {
        "sum": [[2.0, 2.0]]
    }


def test_missing_input(tmp_path: Path) -> None:
    message = refusal(tmp_path, build.add(), sums(LEFT))
    assert message.startswith("unable to load model 'm', configuration expects 1 inputs, model provides 2: ")
    assert "'right' is missing from config.pbtxt" in message
    assert "'left' FP32 [-1,2], 'right' FP32 [-1,2]" in message


def test_input_too_many(tmp_path: Path) -> None:
    message = refusal(tmp_path, build.add(), sums(LEFT, RIGHT, ("third", "FP32", "[ 2 ]")))
    assert "configuration expects 3 inputs, model provides 2: 'third' is not in the model" in message


@pytest.mark.parametrize(("wrong", "meant"), [("rihgt", "right"), ("INPUT__1", "right"), ("Right", "right")])
def test_misspelt_input_is_guessed(tmp_path: Path, wrong: str, meant: str) -> None:
    message = refusal(tmp_path, build.add(), sums(LEFT, (wrong, "FP32", "[ 2 ]")))
    assert message.startswith(f"unexpected inference input '{wrong}', allowed inputs are: left, right")
    assert f"(did you mean '{meant}'?)" in message


def test_misspelt_output_is_guessed(tmp_path: Path) -> None:
    text = sums(LEFT, RIGHT) + build.tensors("output", ("diference", "FP32", "[ 2 ]"))
    message = refusal(tmp_path, build.add(), text)
    assert message.startswith("unexpected inference output 'diference', allowed outputs are: sum, difference")
    assert "(did you mean 'difference'?)" in message


@pytest.mark.parametrize(
    ("text", "role", "name"),
    [
        (build.x_to_y(datatype="FP64"), "input", "x"),
        (build.x_to_y().replace('"y" data_type: TYPE_FP32', '"y" data_type: TYPE_INT64'), "output", "y"),
    ],
)
def test_wrong_datatype(tmp_path: Path, text: str, role: str, name: str) -> None:
    message = refusal(tmp_path, build.identity(), text)
    assert f"for {role} '{name}', model provides TYPE_FP32: write data_type: TYPE_FP32" in message


def test_batch_dimension_repeated_in_dims(tmp_path: Path) -> None:
    message = refusal(tmp_path, build.identity(), build.x_to_y("[ -1, 3 ]"))
    assert message.startswith(
        "model 'm', tensor 'x': the model expects 2 dimensions (shape [-1,3]) but the model configuration specifies 3 "
        "dimensions (an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, "
        "making complete shape [-1,-1,3])"
    )
    assert "must not repeat the batch dimension" in message
    assert "write [3]" in message


def test_batch_dimension_left_out_without_batching(tmp_path: Path) -> None:
    message = refusal(tmp_path, build.identity(), build.x_to_y("[ 3 ]", 0))
    assert "the model expects 2 dimensions (shape [-1,3]) but the model configuration specifies 1 dimensions" in message
    assert "write [-1,3] there, or set max_batch_size" in message


@pytest.mark.parametrize(("dims", "batch"), [("[ 4 ]", 4), ("[ -1, 4 ]", 0), ("[ -1 ]", 4)])
def test_fixed_dimension_differs(tmp_path: Path, dims: str, batch: int) -> None:
    message = refusal(tmp_path, build.identity(), build.x_to_y(dims, batch))
    assert "the model expects 2 dimensions (shape [-1,3])" in message
    assert message.endswith("write [3] in dims" if batch else "write [-1,3] in dims")


def test_free_dimension_of_the_model_takes_a_fixed_one(tmp_path: Path) -> None:
    files = build.folder(tmp_path, build.identity("FP32", ["N", "L"]))
    row = np.ones((1, 7), np.float32)
    assert build.load(files, build.config(build.x_to_y("[ 7 ]"))).execute({"x": row})["y"].shape == (1, 7)


@pytest.mark.parametrize("batch", [2, 16])
def test_batch_fixed_by_the_model(tmp_path: Path, batch: int) -> None:
    message = refusal(tmp_path, build.identity("FP32", [1, 3, 8, 8]), build.x_to_y("[ 3, 8, 8 ]", batch))
    assert "the first dimension must be -1; but shape expected by the model is [1,3,8,8]" in message
    assert f"max_batch_size is {batch} and the model file fixes its own batch at 1" in message
    assert "set max_batch_size: 0 and dims: [1,3,8,8]" in message


def test_batch_fixed_at_one_fits_max_batch_size_one(tmp_path: Path) -> None:
    files = build.folder(tmp_path, build.identity("FP32", [1, 3]))
    row = np.ones((1, 3), np.float32)
    assert build.load(files, build.config(build.x_to_y("[ 3 ]", 1))).execute({"x": row})["y"].tolist() == row.tolist()


def label_model() -> ModelProto:
    """``y``: one INT64 per row, as classifiers give their label."""
    return build.model(
        [build.value("x", FP32, ["N", 3])],
        [build.value("y", TensorProto.INT64, ["N"])],
        [build.node("ArgMax", ["x"], ["y"], axis=1, keepdims=0)],
    )


def test_label_per_row_needs_a_reshape(tmp_path: Path) -> None:
    text = "max_batch_size: 4" + build.tensors("input", ("x", "FP32", "[ 3 ]"))
    message = refusal(tmp_path, label_model(), text + build.tensors("output", ("y", "INT64", "[ 1 ]")))
    assert "model 'm', tensor 'y': the model expects 1 dimensions (shape [-1])" in message
    assert "specifies 2 dimensions" in message
    assert message.endswith("write dims: [ 1 ] with reshape { shape: [ ] }")


def test_label_per_row_with_its_reshape_loads(tmp_path: Path) -> None:
    text = (
        "max_batch_size: 4"
        + build.tensors("input", ("x", "FP32", "[ 3 ]"))
        + build.tensors("output", ("y", "INT64", "[ 1 ] reshape { shape: [ ] }"))
    )
    instance = build.load(build.folder(tmp_path, label_model()), build.config(text))
    result = instance.execute({"x": np.eye(3, dtype=np.float32)})["y"]
    assert result.shape == (3,)
    assert result.tolist() == [0, 1, 2]


def test_reshape_is_what_the_model_is_compared_with(tmp_path: Path) -> None:
    files = build.folder(tmp_path, build.identity())
    assert build.load(files, build.config(build.x_to_y("[ 1, 3 ] reshape { shape: [ 3 ] }")))
    with pytest.raises(ConfigError, match=r"write \[3\] in reshape"):
        build.load(files, build.config(build.x_to_y("[ 3 ] reshape { shape: [ 1, 3 ] }")))


def test_free_output_dimension_over_a_fixed_one_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = build.x_to_y().replace('"y" data_type: TYPE_FP32 dims: [ 3 ]', '"y" data_type: TYPE_FP32 dims: [ -1 ]')
    with caplog.at_level(logging.WARNING, "bident.onnx"):
        assert build.load(build.folder(tmp_path, build.identity()), build.config(text))
    assert "output 'y': the model declares [3] where the configuration says [-1]" in caplog.text


def test_scalar_takes_only_ones(tmp_path: Path) -> None:
    message = refusal(tmp_path, build.identity("FP32", []), build.x_to_y("[ 3 ]", 0))
    assert "scalar tensor 'x', should only provide 1 in the model configuration" in message


def test_scalar_cannot_batch(tmp_path: Path) -> None:
    message = refusal(tmp_path, build.identity("FP32", []), build.x_to_y("[ 1 ]", 4))
    assert "the tensor is a scalar, so set max_batch_size: 0 and dims: [ 1 ]" in message


def initializer_model() -> ModelProto:
    """``y`` = ``x`` + ``bias``, where ``bias`` has a default of tens."""
    return build.model(
        [build.value("x", FP32, ["N", 3]), build.value("bias", FP32, [3])],
        [build.value("y", FP32, ["N", 3])],
        [build.node("Add", ["x", "bias"], ["y"])],
        build.weight("bias", np.full(3, 10, np.float32)),
    )


def biased(optional: str, dims: str = "[ -1, 3 ]", batch: int = 0) -> str:
    return (
        build.x_to_y(dims, batch) + f' input {{ name: "bias" data_type: TYPE_FP32 dims: [ 3 ] optional: {optional} }}'
    )


def test_initializer_is_an_optional_input(tmp_path: Path) -> None:
    instance = build.load(build.folder(tmp_path, initializer_model()), build.config(biased("true")))
    x = np.zeros((1, 3), np.float32)
    assert instance.execute({"x": x})["y"].tolist() == [[10.0, 10.0, 10.0]]
    assert instance.execute({"x": x, "bias": np.ones(3, np.float32)})["y"].tolist() == [[1.0, 1.0, 1.0]]


def test_initializer_may_stay_undeclared_or_be_required(tmp_path: Path) -> None:
    files = build.folder(tmp_path, initializer_model())
    assert build.load(files, build.config(build.x_to_y()))
    assert build.load(files, build.config(biased("false")))


def test_optional_input_cannot_batch(tmp_path: Path) -> None:
    message = refusal(tmp_path, initializer_model(), biased("true", "[ 3 ]", 4))
    assert "optional input 'bias' is not supported for models that support batching: set max_batch_size: 0" in message


def test_optional_input_without_a_default(tmp_path: Path) -> None:
    text = build.x_to_y("[ -1, 3 ]", 0).replace("input {", "input { optional: true", 1)
    message = refusal(tmp_path, build.identity(), text)
    assert "configuration expects 0 inputs, model provides 1" in message
    assert "'x' is marked optional, but the model has no default value for it" in message


def test_ragged_input_needs_a_flat_tensor(tmp_path: Path) -> None:
    text = build.x_to_y().replace("input {", "input { allow_ragged_batch: true", 1)
    message = refusal(tmp_path, build.identity(), text)
    assert "for ragged input 'x', model provides [-1,3]: remove allow_ragged_batch" in message


def test_sequence_controls_and_states_count_as_fed(tmp_path: Path) -> None:
    network = build.model(
        [build.value(name, FP32, ["N", 1]) for name in ("x", "start", "state")],
        [build.value(name, FP32, ["N", 1]) for name in ("y", "state_next")],
        [
            build.node("Mul", ["x", "start"], ["scaled"]),
            build.node("Add", ["scaled", "state"], ["y"]),
            build.node("Identity", ["y"], ["state_next"]),
        ],
    )
    text = (
        build.x_to_y("[ 1 ]")
        + ' sequence_batching { control_input { name: "start" control { kind: CONTROL_SEQUENCE_START '
        + 'fp32_false_true: [ 0, 1 ] } } state { input_name: "state" output_name: "state_next" '
        + "data_type: TYPE_FP32 dims: [ 1 ] } }"
    )
    one = np.ones((1, 1), np.float32)
    results = build.load(build.folder(tmp_path, network), build.config(text)).execute(
        {"x": one, "start": one, "state": one}
    )
    assert {name: array.tolist() for name, array in results.items()} == {"y": [[2.0]], "state_next": [[2.0]]}


def sequence_model() -> ModelProto:
    """``y``: a tensor; ``parts``: a sequence of tensors."""
    return build.model(
        [build.value("x", FP32, ["N", 3])],
        [
            build.value("y", FP32, ["N", 3]),
            build.onnx.helper.make_tensor_sequence_value_info("parts", FP32, ["N", 3]),
        ],
        [build.node("Identity", ["x"], ["y"]), build.node("SequenceConstruct", ["x"], ["parts"])],
    )


def test_sequence_output_is_refused_with_a_cure(tmp_path: Path) -> None:
    text = build.x_to_y() + build.tensors("output", ("parts", "FP32", "[ 3 ]"))
    message = refusal(tmp_path, sequence_model(), text)
    assert message.startswith("Unsupported ONNX Type 'ONNX_TYPE_SEQUENCE' for output 'parts'")
    assert "seq(tensor(float))" in message
    assert "list only its other outputs" in message


def test_the_outputs_beside_a_sequence_work(tmp_path: Path) -> None:
    instance = build.load(build.folder(tmp_path, sequence_model()), build.config(build.x_to_y()))
    row = np.ones((1, 3), np.float32)
    assert list(instance.execute({"x": row})) == ["y"]


def test_undeclared_rank_is_looked_at_when_it_comes_out(tmp_path: Path) -> None:
    network = build.model(
        [build.value("x", FP32, ["N", 3]), build.value("s", TensorProto.INT64, ["R"])],
        [build.value("y", FP32, None)],
        [build.node("Reshape", ["x", "s"], ["y"])],
    )
    files = build.folder(tmp_path, network)
    text = "max_batch_size: 4" + build.tensors("input", ("x", "FP32", "[ 3 ]"))
    text += ' input { name: "s" data_type: TYPE_INT64 dims: [ 1 ] reshape { shape: [ ] } }'
    instance = build.load(files, build.config(text + build.tensors("output", ("y", "FP32", "[ 3 ]"))))
    x = np.ones((2, 3), np.float32)
    assert instance.execute({"x": x, "s": np.array([2, 3])})["y"].shape == (2, 3)
    with pytest.raises(Exception, match=r"output 'y': the model gave 1 dimensions \(shape \[6\]\).*specifies 2"):
        instance.execute({"x": x, "s": np.array([6])})
