"""Every datatype goes through a model unchanged, in every shape a request may have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_models as build
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from bident.backends.base import Instance
from bident.errors import Code, ConfigError, ServeError
from bident.wire.datatypes import BYTES, DATATYPES


def samples(datatype: str) -> NDArray[Any]:
    """Two rows of three, with the datatype's extremes."""
    if datatype == "BYTES":
        array = np.empty((2, 3), dtype=object)
        array[:] = [[b"", "żółw €".encode(), b"a\0b"], [b"x" * 1000, b"\n", "😀".encode()]]
        return array
    kind = DATATYPES[datatype].numpy
    if datatype == "BOOL":
        return np.array([[True, False, True], [False, False, True]])
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return np.array([[limits.min, 0, limits.max], [1, 2, 3]], dtype=kind)
    return np.array([[1.5, -0.0, np.inf], [-2.25, 0.0078125, 256.0]]).astype(kind)


@pytest.fixture
def instance(tmp_path: Path, request: pytest.FixtureRequest) -> Instance:
    datatype = request.param
    files = build.folder(tmp_path, build.identity(datatype))
    config_name = DATATYPES[datatype].config_name.removeprefix("TYPE_")
    return build.load(files, build.config(build.x_to_y(datatype=config_name)))


every_datatype = pytest.mark.parametrize("instance", list(DATATYPES), indirect=True, ids=str)


def datatype_of(request: pytest.FixtureRequest) -> str:
    return str(request.node.callspec.params["instance"])


@every_datatype
def test_values_come_back_exactly(instance: Instance, request: pytest.FixtureRequest) -> None:
    given = samples(datatype_of(request))
    result = instance.execute({"x": given})["y"]
    assert result.dtype == given.dtype
    assert result.shape == given.shape
    assert result.tolist() == given.tolist()
    if given.dtype != object:
        assert result.tobytes() == given.tobytes()


@every_datatype
def test_empty_tensor(instance: Instance, request: pytest.FixtureRequest) -> None:
    datatype = DATATYPES[datatype_of(request)]
    result = instance.execute({"x": np.empty((0, 3), datatype.numpy)})["y"]
    assert result.shape == (0, 3)
    assert result.dtype == datatype.numpy


@every_datatype
def test_read_only_and_transposed_arrays(instance: Instance, request: pytest.FixtureRequest) -> None:
    given = np.repeat(samples(datatype_of(request)), 2, axis=0)[:3].T
    given.flags.writeable = False
    assert not given.flags.c_contiguous
    assert instance.execute({"x": given})["y"].tolist() == given.tolist()


@pytest.mark.parametrize(
    "instance", [name for name, datatype in DATATYPES.items() if datatype.size > 1], indirect=True, ids=str
)
def test_array_at_an_odd_address(instance: Instance, request: pytest.FixtureRequest) -> None:
    datatype = DATATYPES[datatype_of(request)]
    given = samples(datatype.name)
    odd = np.frombuffer(b"\0" + given.tobytes(), np.uint8)[1:].view(datatype.numpy).reshape(2, 3)
    assert not odd.flags.aligned
    inputs = {"x": odd}
    assert instance.execute(inputs)["y"].tobytes() == given.tobytes()
    assert inputs["x"] is odd


@pytest.mark.parametrize("instance", ["BYTES"], indirect=True, ids=str)
def test_string_outputs_are_bytes_objects(instance: Instance) -> None:
    result = instance.execute({"x": samples("BYTES")})["y"]
    assert {type(element) for element in result.reshape(-1).tolist()} == {bytes}


@pytest.mark.parametrize("instance", ["BYTES"], indirect=True, ids=str)
def test_invalid_utf8_names_input_and_element(instance: Instance) -> None:
    given = np.array([[b"fine", b"\xff\xfe", b""]], dtype=object)
    with pytest.raises(ServeError, match=r"input 'x': element 1 is not valid UTF-8 .*byte 0") as failure:
        instance.execute({"x": given})
    assert failure.value.code is Code.INVALID_ARG


def test_bfloat16_beside_other_datatypes(tmp_path: Path) -> None:
    network = build.model(
        [build.value("a", TensorProto.BFLOAT16, ["N", 2]), build.value("b", TensorProto.INT32, ["N", 2])],
        [
            build.value("half", TensorProto.BFLOAT16, ["N", 2]),
            build.value("full", TensorProto.FLOAT, ["N", 2]),
            build.value("text", TensorProto.STRING, ["N", 2]),
        ],
        [
            build.node("Identity", ["a"], ["half"]),
            build.node("Cast", ["a"], ["full"], to=TensorProto.FLOAT),
            build.node("Cast", ["b"], ["text"], to=TensorProto.STRING),
        ],
    )
    files = build.folder(tmp_path, network)
    declared = build.config(
        "max_batch_size: 4"
        + build.tensors("input", ("a", "BF16", "[ 2 ]"), ("b", "INT32", "[ 2 ]"))
        + build.tensors("output", ("half", "BF16", "[ 2 ]"), ("full", "FP32", "[ 2 ]"), ("text", "STRING", "[ 2 ]"))
    )
    a = np.array([[1.0078125, -3.0]]).astype(DATATYPES["BF16"].numpy)
    results = build.load(files, declared).execute({"a": a, "b": np.array([[7, -8]], np.int32)})
    assert results["half"].tobytes() == a.tobytes()
    assert results["full"].tolist() == [[1.0078125, -3.0]]
    assert results["text"].tolist() == [[b"7", b"-8"]]


def test_bfloat16_output_with_string_input_is_refused_with_a_cure(tmp_path: Path) -> None:
    network = build.model(
        [build.value("s", TensorProto.STRING, ["N"])],
        [build.value("half", TensorProto.BFLOAT16, ["N"])],
        [
            build.node("Cast", ["s"], ["full"], to=TensorProto.FLOAT),
            build.node("Cast", ["full"], ["half"], to=TensorProto.BFLOAT16),
        ],
    )
    declared = build.config(
        build.tensors("input", ("s", "STRING", "[ -1 ]")) + build.tensors("output", ("half", "BF16", "[ -1 ]"))
    )
    with pytest.raises(ConfigError, match=r"cannot feed strings .'s'. .* Cast to FP32"):
        build.load(build.folder(tmp_path, network), declared)


@pytest.mark.parametrize("datatype", ["FP32", "INT64", "BYTES"])
def test_scalar_without_batching_is_declared_as_dims_1(tmp_path: Path, datatype: str) -> None:
    files = build.folder(tmp_path, build.identity(datatype, []))
    name = DATATYPES[datatype].config_name.removeprefix("TYPE_")
    instance = build.load(files, build.config(build.x_to_y("[ 1 ]", 0, name)))
    given = np.array([b"5"], dtype=object) if datatype == "BYTES" else np.array([5], DATATYPES[datatype].numpy)
    result = instance.execute({"x": given})["y"]
    assert result.shape == (1,)
    assert result.tolist() == given.tolist()


def test_datatype_outside_the_protocol_is_refused(tmp_path: Path) -> None:
    kind = TensorProto.FLOAT8E4M3FN
    network = build.model(
        [build.value("x", TensorProto.FLOAT, ["N"])],
        [build.value("y", kind, ["N"])],
        [build.node("Cast", ["x"], ["y"], to=kind)],
    )
    files = build.folder(tmp_path, network)
    with pytest.raises(ConfigError, match=r"unsupported datatype float8e4m3fn for output 'y' for model 'm'.*Cast"):
        build.complete(files, build.config())


def test_every_v2_datatype_is_tried() -> None:
    assert set(build.ONNX_TYPES) == set(DATATYPES)
    assert DATATYPES["BYTES"] is BYTES
