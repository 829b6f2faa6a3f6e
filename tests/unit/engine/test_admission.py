"""The gate of a model: what may queue, in Triton's words."""

from __future__ import annotations

import re

import pytest

from bident.engine.admission import Admission
from bident.errors import Code, ServeError
from bident.wire.datatypes import BYTES, DATATYPES, FP32
from tests.unit.engine.engine_fakes import Asked, model_config, tensor

TWO = """
input [ { name: "x", data_type: TYPE_FP32, dims: [ 3 ] }, { name: "y", data_type: TYPE_STRING, dims: [ 1 ] } ]
output [ { name: "out", data_type: TYPE_FP32, dims: [ 1 ] }, { name: "aux", data_type: TYPE_FP32, dims: [ 1 ] } ]
"""
OPTIONAL = """
input [ { name: "x", data_type: TYPE_FP32, dims: [ 3 ] },
        { name: "y", data_type: TYPE_FP32, dims: [ 3 ], optional: true } ]
output [ { name: "out", data_type: TYPE_FP32, dims: [ 1 ] } ]
"""
ALL_OPTIONAL = OPTIONAL.replace("dims: [ 3 ] }", "dims: [ 3 ], optional: true }")
VARIABLE = TWO.replace("dims: [ 3 ]", "dims: [ -1, 2 ]")


def x(*shape: int, datatype: str = "FP32") -> object:
    return tensor("x", [], shape, DATATYPES[datatype])


def y(*shape: int) -> object:
    return tensor("y", [], shape, BYTES)


def admit(io: str, *inputs: object, batch: int = 8, outputs: list[str] | None = None, request_id: str = "") -> Asked:
    request = Asked(*inputs, request_id=request_id)  # type: ignore[arg-type]
    request.outputs = outputs
    Admission(model_config(io=io, batch=batch, text="dynamic_batching { }" if batch else "")).admit(request)
    return request


def refusal(io: str, *inputs: object, batch: int = 8, outputs: list[str] | None = None, request_id: str = "") -> str:
    with pytest.raises(ServeError) as caught:
        admit(io, *inputs, batch=batch, outputs=outputs, request_id=request_id)
    assert caught.value.code is Code.INVALID_ARG
    return caught.value.message


def test_a_valid_request_learns_how_many_rows_it_has() -> None:
    assert admit(TWO, x(5, 3), y(5, 1)).batch_size == 5
    assert admit(TWO, x(8, 3), y(8, 1), outputs=["aux", "out"]).batch_size == 8


def test_without_a_batch_dimension_a_request_is_one() -> None:
    assert admit(TWO, x(3), y(1), batch=0).batch_size == 1
    assert admit(VARIABLE, x(7, 2), y(1), batch=0).batch_size == 1


# Names


def test_missing_inputs_are_named() -> None:
    message = refusal(TWO, x(1, 3))

    assert (
        "expected 2 inputs but got 1 inputs for model 'm'. Got input(s) ['x'], but missing required input(s) ['y']. "
        "Please provide all required input(s)." in message
    )


def test_a_request_without_inputs_misses_all_of_them() -> None:
    assert "Got input(s) [], but missing required input(s) ['x', 'y']" in refusal(TWO)


def test_unknown_inputs_are_named_with_the_names_there_are() -> None:
    message = refusal(TWO, x(1, 3), tensor("why", [], (1, 1), BYTES))

    assert "unexpected inference input 'why' for model 'm'" in message
    assert "'x', 'y'" in message
    assert "did you mean 'text_input'?" in refusal(
        TWO.replace('"x"', '"text_input"'), tensor("text_inputs", [], (1, 3), FP32), y(1, 1)
    )


def test_optional_inputs_may_be_absent_and_required_ones_not() -> None:
    assert admit(OPTIONAL, x(2, 3)).batch_size == 2
    assert admit(OPTIONAL, x(2, 3), tensor("y", [], (2, 3), FP32)).batch_size == 2
    message = refusal(OPTIONAL, tensor("y", [], (2, 3), FP32))
    assert "expected number of inputs between 1 and 2 but got 1 inputs" in message
    assert "missing required input(s) ['x']" in message


def test_a_request_that_leaves_out_every_optional_input_is_one_row() -> None:
    assert admit(ALL_OPTIONAL).batch_size == 1
    assert admit(ALL_OPTIONAL, batch=0).batch_size == 1


def test_unknown_outputs_are_named_with_the_names_there_are() -> None:
    message = refusal(TWO, x(1, 3), y(1, 1), outputs=["out", "auxx"])

    assert "unexpected inference output 'auxx' for model 'm'; did you mean 'aux'?" in message
    assert "'out', 'aux'" in message


# Datatypes


@pytest.mark.parametrize("batch", [8, 0])
def test_a_wrong_datatype_is_named_with_the_right_one(batch: int) -> None:
    lead = (1,) if batch else ()
    message = refusal(TWO, x(*lead, 3, datatype="FP64"), y(*lead, 1), batch=batch)

    assert "inference input 'x' data-type is 'FP64', but model 'm' expects 'FP32'" in message


# Shapes


@pytest.mark.parametrize(
    ("shape", "got"), [((1, 4), "[1,4]"), ((3,), "[3]"), ((1, 3, 1), "[1,3,1]"), ((1,), "[1]"), ((1, 0), "[1,0]")]
)
def test_a_wrong_shape_is_shown_beside_the_right_one_with_the_batch_dimension(shape: tuple[int, ...], got: str) -> None:
    message = refusal(TWO, x(*shape), y(1, 1))

    assert f"unexpected shape for input 'x' for model 'm'. Expected [-1,3], got {got}. NOTE: Setting a non-zero" in (
        message
    )


def test_a_wrong_shape_without_a_batch_dimension_needs_no_note() -> None:
    message = refusal(TWO, x(1, 3), y(1), batch=0)

    assert message.endswith("Expected [3], got [1,3].")


def test_variable_dimensions_take_any_size_even_none() -> None:
    for size in (0, 1, 9):
        assert admit(VARIABLE, x(2, size, 2), y(2, 1)).batch_size == 2
    assert "Expected [-1,-1,2], got [2,5,3]" in refusal(VARIABLE, x(2, 5, 3), y(2, 1))


def test_a_tensor_without_dimensions_lacks_the_batch() -> None:
    assert "input 'x' has no shape but model requires batch dimension for 'm'" in refusal(TWO, x(), y(1, 1))
    assert "Expected [3], got []" in refusal(TWO, x(), y(1), batch=0)


# Batch sizes


def test_a_batch_larger_than_the_model_takes_is_refused() -> None:
    message = refusal(TWO, x(9, 3), y(9, 1))

    assert "inference request batch-size must be <= 8 for 'm'" in message
    assert "got 9" in message


def test_an_empty_batch_is_refused() -> None:
    assert "batch-size must be >= 1 for 'm'" in refusal(TWO, x(0, 3), y(0, 1))


def test_inputs_of_unequal_batches_are_refused() -> None:
    message = refusal(TWO, x(2, 3), y(3, 1))

    assert "input 'y' batch size does not match other inputs for 'm': got 3, the inputs before it have 2" in message


def test_messages_of_the_core_begin_with_the_request_id() -> None:
    assert refusal(TWO, x(1, 4), y(1, 1), request_id="r-7").startswith("[request id: r-7] unexpected shape")
    assert refusal(TWO, x(1, 4), y(1, 1)).startswith("[request id: <id_unknown>] unexpected shape")


# Who may share a batch


def test_requests_to_a_model_of_fixed_shapes_need_no_signature() -> None:
    assert admit(TWO, x(1, 3), y(1, 1)).signature == admit(TWO, x(8, 3), y(8, 1)).signature


def test_rows_of_unlike_shapes_have_unlike_signatures() -> None:
    one, same, other = (admit(VARIABLE, x(rows, size, 2), y(rows, 1)) for rows, size in ((1, 4), (3, 4), (1, 5)))

    assert one.signature == same.signature
    assert one.signature != other.signature


def test_an_optional_input_that_is_absent_makes_another_signature() -> None:
    without = admit(OPTIONAL, x(1, 3))
    with_it = admit(OPTIONAL, x(1, 3), tensor("y", [], (1, 3), FP32))

    assert without.signature != with_it.signature
    assert without.signature == admit(OPTIONAL, x(4, 3)).signature


def test_two_different_shapes_never_print_the_same() -> None:
    message = refusal(TWO, x(1, 4), y(1, 1))
    shown = re.search(r"Expected (\[.*?\]), got (\[.*?\])", message)

    assert shown is not None
    assert shown[1] != shown[2]
