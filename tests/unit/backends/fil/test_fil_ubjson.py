"""The UBJSON reader: XGBoost's files, the types of the format, and damage."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
from fil_models import booster
from hypothesis import given, settings
from hypothesis import strategies as st

from bident.backends.fil.ubjson import loads
from bident.errors import ConfigError


def plain(value: Any) -> Any:
    """Numpy arrays as lists, float32 rounded as XGBoost's JSON writes it."""
    if isinstance(value, np.ndarray):
        return [plain(each) for each in value.tolist()]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return float(np.float32(value)) if isinstance(value, float) else value


@pytest.mark.parametrize("settings", [{}, {"booster": "dart"}], ids=str)
def test_same_content_as_the_json(settings):
    model = booster("reg:squarederror", "real", **settings)
    assert plain(loads(bytes(model.save_raw("ubj")))) == plain(json.loads(model.save_raw("json")))


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"Z", None),
        (b"T", True),
        (b"F", False),
        (b"i\xff", -1),
        (b"U\xff", 255),
        (b"I\x01\x00", 256),
        (b"l\xff\xff\xff\xfe", -2),
        (b"L" + struct.pack(">q", 2**40), 2**40),
        (b"d" + struct.pack(">f", 0.5), 0.5),
        (b"D" + struct.pack(">d", 0.25), 0.25),
        (b"Ca", "a"),
        (b"Si\x02hi", "hi"),
        (b"SL" + struct.pack(">q", 2) + b"hi", "hi"),
        (b"[i\x01SU\x01a]", [1, "a"]),
        (b"[#i\x02i\x01T", [1, True]),
        (b"[$U#i\x03\x01\x02\x03", [1, 2, 3]),
        (b"[$S#i\x02i\x01ai\x01b", ["a", "b"]),
        (b"{i\x01aZi\x01b[]}", {"a": None, "b": []}),
        (b"{#i\x01i\x01aT", {"a": True}),
        (b"{$i#i\x02i\x01a\x01i\x01b\x02", {"a": 1, "b": 2}),
    ],
)
def test_types(data, value):
    assert plain(loads(data)) == value


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"[",
        b"{",
        b"[$",
        b"[$U",
        b"[$U]",
        b"[#i\xff",
        b"[$Z#i\x05",
        b"Sd\x00\x00\x00\x00",
        b"SL\x00",
        b"{i\x01a",
        b"l\x00",
    ],
)
def test_damage(data):
    with pytest.raises(ConfigError, match=r"at byte \d+ of \d+"):
        loads(data)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60) | st.text("[]{}$#iUIlLdDSTFZ\x00\x01\x02", max_size=60).map(str.encode))
def test_any_bytes_give_a_value_or_a_config_error(data):
    try:
        loads(data)
    except ConfigError as error:
        assert error.message  # noqa: PT017 - either outcome is right
