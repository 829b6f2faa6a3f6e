"""The table of datatypes and its inverse."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from bident.wire.datatypes import BY_CONFIG_NAME, BYTES, DATATYPES, from_numpy

SIZES = {
    "BOOL": 1,
    "UINT8": 1,
    "UINT16": 2,
    "UINT32": 4,
    "UINT64": 8,
    "INT8": 1,
    "INT16": 2,
    "INT32": 4,
    "INT64": 8,
    "FP16": 2,
    "FP32": 4,
    "FP64": 8,
    "BF16": 2,
    "BYTES": 0,
}


def test_the_table_has_every_v2_datatype_with_its_size() -> None:
    assert {name: datatype.size for name, datatype in DATATYPES.items()} == SIZES


@pytest.mark.parametrize("name", SIZES)
def test_names_and_numpy_types_agree(name: str) -> None:
    datatype = DATATYPES[name]

    assert datatype.name == name
    assert datatype.config_name == ("TYPE_STRING" if name == "BYTES" else f"TYPE_{name}")
    assert BY_CONFIG_NAME[datatype.config_name] is datatype
    assert datatype.size in (0, datatype.numpy.itemsize)
    assert from_numpy(datatype.numpy) is datatype


def test_every_datatype_has_its_own_config_name() -> None:
    assert len(BY_CONFIG_NAME) == len(DATATYPES)


@pytest.mark.parametrize("name", [name for name in SIZES if SIZES[name] > 1 and name != "BF16"])
def test_elements_are_little_endian_whatever_the_machine(name: str) -> None:
    one = np.array([1], DATATYPES[name].numpy).tobytes()
    big = np.array([1], DATATYPES[name].numpy.newbyteorder(">"))

    assert one == big.tobytes()[::-1]
    assert from_numpy(big.dtype) is DATATYPES[name]


@pytest.mark.parametrize("spelling", ["l", "q", "p", "i8", np.int64, np.longlong])
def test_platform_spellings_of_a_type_are_the_same_datatype(spelling: object) -> None:
    dtype = np.dtype(spelling)  # type: ignore[call-overload]

    assert from_numpy(dtype) is DATATYPES[f"INT{dtype.itemsize * 8}"]


@pytest.mark.parametrize("dtype", ["S5", "U3", "O", np.dtypes.StringDType()])
def test_strings_of_any_kind_are_bytes(dtype: object) -> None:
    assert from_numpy(np.dtype(dtype)) is BYTES  # type: ignore[call-overload]


@pytest.mark.parametrize("dtype", ["c8", "M8[s]", "m8[us]", "V4", [("a", "i4")], ml_dtypes.float8_e5m2, ml_dtypes.int4])
def test_what_the_protocol_cannot_carry_has_no_datatype(dtype: object) -> None:
    assert from_numpy(np.dtype(dtype)) is None  # type: ignore[call-overload]
