"""JSON numbers to tensor elements: what fits is the nearest value there is, what does not is refused."""

from __future__ import annotations

import bisect
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bident.errors import Code, ServeError
from bident.wire.datatypes import BYTES, DATATYPES
from bident.wire.numbers import narrow, to_array

FLOATS = ("FP16", "FP32", "FP64", "BF16")
INTEGERS = [name for name in DATATYPES if "INT" in name]
BF16 = DATATYPES["BF16"]

_POSITIVE = np.arange(0x7F80, dtype=np.uint16).view(BF16.numpy).astype(np.float64).tolist()
"""Every bfloat16 from 0 to the largest, in order: the index of each is its bits."""


def nearest_bfloat16(value: float) -> float | None:
    """The bfloat16 nearest to ``value``, ties to even, by exact arithmetic; None where it would be infinite."""
    size = Fraction(abs(value))
    above = bisect.bisect_left(_POSITIVE, size)
    ladder = [*map(Fraction, _POSITIVE[max(above - 1, 0) : above + 1])]
    if above == len(_POSITIVE):
        ladder.append(Fraction(2) ** 128)
    bits = min(range(len(ladder)), key=lambda at: (abs(ladder[at] - size), (max(above - 1, 0) + at) % 2))
    bits += max(above - 1, 0)
    return None if bits == len(_POSITIVE) else float(np.copysign(_POSITIVE[bits], value))


@given(
    st.one_of(
        st.floats(allow_nan=False, allow_infinity=False),
        st.tuples(st.sampled_from(_POSITIVE), st.floats(-(2.0**-7), 2.0**-7)).map(lambda near: near[0] * (1 + near[1])),
        # Just beside the middle between two of them, where rounding twice goes wrong.
        st.tuples(st.sampled_from(_POSITIVE), st.integers(24, 52), st.sampled_from([-1, 0, 1])).map(
            lambda near: near[0] * (1 + 2.0**-8 * (1 + near[2] * 2.0 ** (8 - near[1])))
        ),
    )
)
@example(10.156250002364686)
@example(-10.156250002364686)
@example(2.0**128 * (1 - 2.0**-9))
@example(2.0**128 * (1 - 2.0**-9) * (1 - 2.0**-30))
@example(float(2**63))
@example(5e-324)
@example(2.0**-134 * (1 + 2.0**-40))
@example(-0.0)
def test_bfloat16_is_rounded_once(value: float) -> None:
    wanted = nearest_bfloat16(value)
    for convert in (lambda: to_array("x", BF16, [value]), lambda: narrow("x", BF16, np.array([value]))):
        if wanted is None:
            with pytest.raises(ServeError, match="out of range for BF16"):
                convert()
        else:
            (found,) = convert().astype(np.float64).tolist()
            assert (found, np.signbit(found)) == (wanted, np.signbit(wanted))


def test_the_double_rounding_that_was() -> None:
    assert to_array("x", BF16, [10.156250002364686]).tolist() == [10.1875]


@pytest.mark.parametrize("name", FLOATS[1:])
@pytest.mark.parametrize(
    ("value", "wanted"), [(2**63 - 1, 2.0**63), (2**63, 2.0**63), (2**64 - 1, 2.0**64), (-(2**63), -(2.0**63))]
)
def test_integers_of_64_bits_become_floats(name: str, value: int, wanted: float) -> None:
    assert to_array("x", DATATYPES[name], [value, 1]).astype(np.float64).tolist() == [wanted, 1.0]


@pytest.mark.parametrize("name", sorted(set(DATATYPES) - {"BYTES", "BOOL"}))
def test_a_long_list_is_converted_like_a_short_one(name: str) -> None:
    datatype = DATATYPES[name]
    values: list[Any] = [0, 1, 2, 3, 4] * 30_000
    assert to_array("x", datatype, values).astype(int).tolist() == values
    values[-1] = 10**400
    with pytest.raises(ServeError, match=f"input 'x' is out of range for {name}"):
        to_array("x", datatype, values)


@pytest.mark.parametrize("name", [*INTEGERS, "FP16", "FP32"])
def test_arrays_obey_the_same_bounds(name: str) -> None:
    datatype = DATATYPES[name]
    if name in INTEGERS:
        bounds = np.iinfo(datatype.numpy)
        wide = np.uint64 if name == "UINT64" else np.int64
        edges, beyond = [int(bounds.min), int(bounds.max)], [] if "64" in name else [bounds.min - 1, bounds.max + 1]
    else:
        largest = float(ml_dtypes.finfo(datatype.numpy).max)
        wide, edges, beyond = np.float64, [-largest, largest], [-largest * 1.01, largest * 1.01]
    assert narrow("x", datatype, np.array(edges, wide)).tolist() == edges
    for value in beyond:
        with pytest.raises(ServeError, match=f"out of range for {name}"):
            narrow("x", datatype, np.array([0, value], wide))


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_at_the_edge_fit_and_beyond_are_refused(name: str) -> None:
    datatype = DATATYPES[name]
    bounds = np.iinfo(datatype.numpy)
    low, high = int(bounds.min), int(bounds.max)

    array = to_array("x", datatype, [low, high])

    assert (array.tolist(), array.dtype) == ([low, high], datatype.numpy)
    for value in (low - 1, high + 1, 10**30, -(10**30)):
        with pytest.raises(ServeError, match=f"input 'x' is out of range for {name}") as caught:
            to_array("x", datatype, [0, value])
        assert caught.value.code is Code.INVALID_ARG


@pytest.mark.parametrize("name", FLOATS)
def test_the_largest_float_fits_and_what_would_be_infinite_is_refused(name: str) -> None:
    datatype = DATATYPES[name]
    largest = float(ml_dtypes.finfo(datatype.numpy).max)

    assert to_array("x", datatype, [largest, -largest]).tolist() == [largest, -largest]
    beyond = 10**400 if name == "FP64" else largest * 1.01
    for value in (beyond, -beyond):
        with pytest.raises(ServeError, match=f"out of range for {name}"):
            to_array("x", datatype, [0.0, value])


@pytest.mark.parametrize("name", ["FP16", "FP32", "BF16"])
@given(share=st.floats(-(2.0**-7), 2.0**-7))
def test_no_finite_number_becomes_infinite(name: str, share: float) -> None:
    largest = float(ml_dtypes.finfo(DATATYPES[name].numpy).max)
    try:
        array = to_array("x", DATATYPES[name], [largest + largest * share])
    except ServeError:
        assert share > 0
    else:
        assert np.isfinite(array.astype(np.float64)).all()


def test_halves_round_to_even() -> None:
    assert to_array("x", DATATYPES["FP16"], [1 + 2.0**-11, 1 + 3 * 2.0**-11]).tolist() == [1.0, 1 + 2.0**-9]
    assert to_array("x", DATATYPES["BF16"], [1.0078125]).astype(float).tolist() == [1.0078125]


@pytest.mark.parametrize("name", list(DATATYPES))
def test_no_elements_are_an_empty_array(name: str) -> None:
    array = to_array("x", DATATYPES[name], [])

    assert (array.shape, array.dtype) == ((0,), DATATYPES[name].numpy)


def test_strings_stay_bytes_with_their_trailing_nuls() -> None:
    assert to_array("x", BYTES, [b"a\0", b"", b"long enough"]).tolist() == [b"a\0", b"", b"long enough"]
