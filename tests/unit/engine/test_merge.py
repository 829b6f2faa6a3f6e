"""Requests to a batch and back: nothing lost, nothing mixed up, nothing reinterpreted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from bident.engine.merge import Merge, wanted_columns
from bident.errors import Code, ServeError
from bident.model.config import ModelConfig
from bident.wire.datatypes import BYTES, DATATYPES, FP32, DataType
from bident.wire.infer import Column, InferResponse
from bident.wire.numbers import to_array
from tests.unit.engine.engine_fakes import Asked, model_config, tensor

FLOATS = ("FP16", "FP32", "FP64", "BF16")
INTEGERS = [name for name in DATATYPES if "INT" in name]


def one_tensor(dims: str, more: str = "", *, batch: int = 8, datatype: str = "FP32") -> ModelConfig:
    """A model with input X and output Y of the same declaration."""
    word = DATATYPES[datatype].config_name
    io = "".join(
        f'{side} {{ name: "{name}" data_type: {word} dims: [ {dims} ] {more} }}'
        for side, name in (("input", "X"), ("output", "Y"))
    )
    return model_config(io=io, batch=batch, text="dynamic_batching { }" if batch else "")


def ask_rows(data: Any, shape: tuple[int, ...], datatype: DataType = FP32) -> Asked:
    request = Asked(tensor("X", data, shape, datatype))
    request.batch_size = shape[0] if shape else 1
    return request


def refused(config: ModelConfig, arrays: Any, rows: int = 2) -> str:
    with pytest.raises(ServeError) as caught:
        Merge(config).scatter(arrays, rows)
    assert caught.value.code is Code.INTERNAL
    return caught.value.message


# Requests to a batch


def test_a_request_alone_is_not_copied() -> None:
    array = np.ones((3, 2), np.float32)

    assert Merge(one_tensor("2")).gather([ask_rows(array, (3, 2))], 3)["X"] is array


def test_lists_and_arrays_join_in_order() -> None:
    requests = [
        ask_rows([1, 2], (1, 2)),
        ask_rows(np.array([[3, 4], [5, 6]], np.float32), (2, 2)),
        ask_rows([7.5, 8], (1, 2)),
    ]

    batch = Merge(one_tensor("2")).gather(requests, 4)["X"]

    assert batch.dtype == np.float32
    assert batch.tolist() == [[1, 2], [3, 4], [5, 6], [7.5, 8]]


@pytest.mark.parametrize("name", list(DATATYPES))
def test_every_datatype_joins(name: str) -> None:
    datatype = DATATYPES[name]
    values: list[Any] = [b"a", b""] if name == "BYTES" else [True, False] if name == "BOOL" else [1, 0]
    requests = [ask_rows(values, (2, 1), datatype), ask_rows(to_array("X", datatype, values).reshape(2, 1), (2, 1))]

    batch = Merge(one_tensor("1", datatype=name)).gather(requests, 4)["X"]

    assert (batch.shape, batch.dtype) == ((4, 1), datatype.numpy)
    assert batch.reshape(-1).tolist() == values + values


def test_rows_may_hold_nothing() -> None:
    requests = [ask_rows([], (2, 0)), ask_rows([], (1, 0))]

    assert Merge(one_tensor("-1")).gather(requests, 3)["X"].shape == (3, 0)


def test_each_input_is_joined_with_its_own_kind() -> None:
    io = """
    input [ { name: "A", data_type: TYPE_INT32, dims: [ 1 ] }, { name: "B", data_type: TYPE_STRING, dims: [ 1 ] } ]
    output [ { name: "Y", data_type: TYPE_FP32, dims: [ 1 ] } ]
    """
    first = Asked(tensor("A", [1], (1, 1), DATATYPES["INT32"]), tensor("B", [b"p"], (1, 1), BYTES))
    second = Asked(tensor("B", [b"q"], (1, 1), BYTES), tensor("A", [2], (1, 1), DATATYPES["INT32"]))

    batch = Merge(model_config(io=io)).gather([first, second], 2)

    assert {name: array.reshape(-1).tolist() for name, array in batch.items()} == {"A": [1, 2], "B": [b"p", b"q"]}


def test_a_model_without_a_batch_dimension_gets_the_tensor_as_it_is() -> None:
    batch = Merge(one_tensor("-1, 2", batch=0)).gather([ask_rows([1, 2, 3, 4], (2, 2))], 1)

    assert batch["X"].tolist() == [[1, 2], [3, 4]]


# Reshape, both ways

RESHAPES = [
    # dims, reshape, the client's shape, the model's shape (both without the batch)
    ("4", "2, 2", (4,), (2, 2)),
    ("1", "", (1,), ()),
    ("2, 3", "6", (2, 3), (6,)),
    ("-1", "1, -1", (5,), (1, 5)),
    ("-1", "1, -1", (0,), (1, 0)),
    ("-1, 4, -1", "-1, 2, 2, -1", (3, 4, 5), (3, 2, 2, 5)),
    ("4, -1, -1, 1", "2, 2, -1, -1", (4, 2, 3, 1), (2, 2, 2, 3)),
]


@pytest.mark.parametrize(
    ("batch", "dims", "reshape", "client", "model"),
    # A model without a batch dimension cannot have scalars.
    [(batch, *case) for case in RESHAPES for batch in (8, 0) if batch or case[1]],
)
def test_reshape_both_ways(
    batch: int, dims: str, reshape: str, client: tuple[int, ...], model: tuple[int, ...]
) -> None:
    config = one_tensor(dims, f"reshape {{ shape: [ {reshape} ] }}", batch=batch)
    lead = (2,) if batch else ()
    given_array = np.arange(np.prod(lead + client), dtype=np.float32).reshape(lead + client)

    inside = Merge(config).gather([ask_rows(given_array, lead + client)], 2)["X"]
    (column,) = Merge(config).scatter({"Y": inside}, 2)

    assert inside.shape == lead + model
    assert column.array.shape == lead + client
    assert column.array.tolist() == given_array.tolist()


@pytest.mark.parametrize(
    ("array", "found"),
    [
        (np.zeros((2, 2, 3), np.float32), "has shape [2, 2, 3], but its config declares [2, 2, 2]"),
        (np.zeros((2, 4), np.float32), "has shape [2, 4], but its config declares [2, 2, 2]"),
        (np.zeros((2, 2, 2, 1), np.float32), "has shape [2, 2, 2, 1], but its config declares [2, 2, 2]"),
    ],
)
def test_a_wrong_shape_before_the_reshape_is_explained_in_the_models_own_shape(array: np.ndarray, found: str) -> None:
    assert found in refused(one_tensor("4", "reshape { shape: [ 2, 2 ] }"), {"Y": array})


def test_a_wrong_rank_where_reshape_has_wildcards_is_explained() -> None:
    config = one_tensor("-1", "reshape { shape: [ 1, -1 ] }")

    assert "has shape [2, 5], but its config declares [2, 1, -1]" in refused(
        config, {"Y": np.zeros((2, 5), np.float32)}
    )


# A batch to answers


def test_outputs_come_in_declared_order_and_extra_ones_are_dropped() -> None:
    io = """
    input [ { name: "X", data_type: TYPE_FP32, dims: [ 1 ] } ]
    output [ { name: "B", data_type: TYPE_FP32, dims: [ 1 ] }, { name: "A", data_type: TYPE_INT64, dims: [ 1 ] } ]
    """
    arrays = {"dbg": np.zeros(3), "A": np.ones((2, 1), np.int64), "B": np.zeros((2, 1), np.float32)}

    columns = Merge(model_config(io=io)).scatter(arrays, 2)

    assert [(column.name, column.datatype.name) for column in columns] == [("B", "FP32"), ("A", "INT64")]


@pytest.mark.parametrize(
    ("array", "found"),
    [
        (np.zeros((2, 2), np.float64), "output 'Y' of model 'm' has datatype FP64, but its config declares FP32"),
        (np.zeros((2, 2), np.int64), "has datatype INT64"),
        (np.zeros((2, 2), np.complex64), "has datatype complex64"),
        (np.array([["a", "b"]] * 2), "has datatype BYTES"),
        (np.zeros((2, 3), np.float32), "has shape [2, 3], but its config declares [2, 2]"),
        (np.zeros((2, 2, 1), np.float32), "has shape [2, 2, 1], but its config declares [2, 2]"),
        (np.zeros((2,), np.float32), "has shape [2], but its config declares [2, 2]"),
        (np.zeros((3, 2), np.float32), "has shape [3, 2], but its config declares [2, 2]"),
        (np.zeros((1, 2), np.float32), "has shape [1, 2], but its config declares [2, 2]"),
        (np.float32(1), "has shape [], but its config declares [2, 2]"),
        ([[0.0, 0.0]] * 2, "is a list, but its config declares an array of FP32"),
        ("text", "is a str, but its config declares an array of FP32"),
    ],
)
def test_an_output_that_is_not_as_declared_is_an_internal_error_that_says_what(array: Any, found: str) -> None:
    assert found in refused(one_tensor("2"), {"Y": array})


@pytest.mark.parametrize("shape", [(1, 2), (3,), ()])
def test_without_a_batch_dimension_the_whole_shape_counts(shape: tuple[int, ...]) -> None:
    message = refused(one_tensor("2", batch=0), {"Y": np.zeros(shape, np.float32)})

    assert f"has shape {list(shape)}, but its config declares [2]" in message


@pytest.mark.parametrize("returned", [None, [], np.zeros(2)])
def test_a_model_that_returns_no_dict_is_told_so(returned: Any) -> None:
    assert f"model 'm' returned a {type(returned).__name__}, not a dict" in refused(one_tensor("2"), returned)


def test_wildcards_take_any_size_even_none() -> None:
    for size in (0, 1, 7):
        (column,) = Merge(one_tensor("-1")).scatter({"Y": np.zeros((2, size), np.float32)}, 2)
        assert column.array.shape == (2, size)


def test_an_answer_is_in_this_machines_byte_order() -> None:
    (column,) = Merge(one_tensor("2")).scatter({"Y": np.array([[1, 2], [3, 4]], ">f4")}, 2)

    assert column.array.dtype is np.dtype(np.float32)
    assert column.array.tolist() == [[1, 2], [3, 4]]


def test_other_spellings_of_a_datatype_are_the_datatype() -> None:
    array = np.array([[1], [2]], np.longlong)

    (column,) = Merge(one_tensor("1", datatype="INT64")).scatter({"Y": array}, 2)

    assert column.array.tolist() == [[1], [2]]


@pytest.mark.parametrize(
    "array",
    [
        np.array([["a\u00e9"], [""]]),
        np.array([["a\u00e9"], [""]], dtype=np.dtypes.StringDType()),
        np.array([["a\u00e9".encode()], [b""]]),
        np.array([["a\u00e9"], [b""]], dtype=object),
        np.array([[bytearray("a\u00e9".encode())], [memoryview(b"")]], dtype=object),
    ],
    ids=["U", "StringDType", "S", "object", "buffers"],
)
def test_strings_of_any_kind_leave_as_bytes(array: np.ndarray) -> None:
    (column,) = Merge(one_tensor("1", datatype="BYTES")).scatter({"Y": array}, 2)

    assert column.array.dtype == object
    assert column.array.tolist() == [["a\u00e9".encode()], [b""]]
    assert {type(value) for value in column.array.reshape(-1).tolist()} == {bytes}


def test_bytes_leave_as_they_are() -> None:
    array = np.array([[b"\xff\0"], [b"x"]], dtype=object)

    (column,) = Merge(one_tensor("1", datatype="BYTES")).scatter({"Y": array}, 2)

    assert column.array is array


@pytest.mark.parametrize("element", [7, None, 1.5, "\ud800", ["nested"]])
def test_an_element_that_is_neither_text_nor_bytes_is_an_error(element: Any) -> None:
    array = np.empty((2, 1), dtype=object)
    array[0, 0], array[1, 0] = b"fine", element

    message = refused(one_tensor("1", datatype="BYTES"), {"Y": array})

    assert f"output 'Y' of model 'm' holds {type(element).__name__} " in message
    assert "at element 1" in message
    message.encode()  # fit for an answer, whatever it quotes


# What a request wants of it


def columns(*names: str) -> list[Column]:
    return [Column(name, FP32, np.zeros((1, 1), np.float32)) for name in names]


def test_wanted_outputs_come_in_the_order_of_the_request() -> None:
    request = Asked()
    request.outputs = ["c", "a"]

    assert [column.name for column in wanted_columns(request, columns("a", "b", "c"))] == ["c", "a"]


def test_a_wanted_output_that_the_model_did_not_give_is_an_internal_error() -> None:
    request = Asked()
    request.outputs = ["a", "z"]

    with pytest.raises(ServeError, match="model 'm' produced no output 'z'") as caught:
        wanted_columns(request, columns("a"), ["Z"])
    assert caught.value.code is Code.INTERNAL
    assert caught.value.message.endswith("; it produced 'a', 'Z'")


# Round trip


@given(data=st.data())
def test_however_a_batch_is_split_every_request_gets_its_own_rows_back(data: st.DataObject) -> None:
    datatype = data.draw(st.sampled_from(list(DATATYPES.values())))
    item = data.draw(st_numpy.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=3))
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=5))
    rows = sum(sizes)
    count = rows * int(np.prod(item))
    if datatype is BYTES:
        values = np.empty(count, dtype=object)
        values[:] = data.draw(st.lists(st.binary(max_size=5), min_size=count, max_size=count))
    elif datatype.name in FLOATS:
        values = np.array(data.draw(st.lists(st.integers(-64, 64), min_size=count, max_size=count)), datatype.numpy)
    else:
        values = data.draw(st_numpy.arrays(datatype.numpy, count))
    whole = values.reshape(rows, *item)
    requests, start = [], 0
    for size in sizes:
        part = whole[start : start + size]
        start += size
        numbers = part.astype(np.float64) if datatype.name == "BF16" else part
        as_list = data.draw(st.booleans())
        requests.append(ask_rows(numbers.reshape(-1).tolist() if as_list else part, part.shape, datatype))
    config = one_tensor(", ".join(["-1"] * len(item)), batch=16, datatype=datatype.name)

    batch = Merge(config).gather(requests, rows)["X"]
    scattered = Merge(config).scatter({"Y": batch}, rows)

    start = 0
    for request in requests:
        stop = start + request.batch_size
        (output,) = InferResponse("m", "1", "", scattered, start, stop).outputs
        assert (output.datatype, output.array.dtype) == (datatype, datatype.numpy)
        assert output.array.shape == request.inputs["X"].shape
        assert output.array.tolist() == whole[start:stop].tolist()
        start = stop
    assert start == rows
