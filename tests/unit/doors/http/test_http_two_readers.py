"""Small bodies are read by orjson, large ones by simdjson: both accept, refuse and understand the same."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from http_line import Answer, post
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bident.doors.declared_tensors import MOST_ITEMS
from bident.doors.http.v2_json import LARGE_BODY, loads

WORDS = ["FP32", "FP64", "INT8", "INT64", "UINT64", "BOOL", "BYTES", "FP16"]

# Elements as JSON text: among them what only looks like a number.
_ELEMENTS = st.sampled_from(
    r"""0 -0 1 -1 127 128 -129 255 1.0 -0.0 0.1 1e0 1E+2 1e-400 1e400 -1e400 3.4028235e38 3.4028236e38 1e39 65504 65520
    9007199254740993 9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809
    18446744073709551615 18446744073709551616 340282366920938463463374607431768211456 123456789012345678901234567890
    01 1. .5 +1 -- 1e NaN Infinity nan 0x1 1_0 true false null True "a" "" "1" "\u00e9" "\ud800" "\udc00\ud800"
    "\ud83d\ude00" "\x" [] [1] [[1]] [1,2] {} {"b64":"AAEC"} {"a":1,"a":2}""".split()  # noqa: SIM905
)
_DATA = st.one_of(
    st.lists(_ELEMENTS, max_size=4).map(lambda items: f"[{','.join(items)}]"),
    st.lists(st.lists(_ELEMENTS, min_size=1, max_size=2).map(lambda items: f"[{','.join(items)}]"), max_size=3).map(
        lambda rows: f"[{','.join(rows)}]"
    ),
    _ELEMENTS,
)
_SHAPES = st.sampled_from(
    "[1,1] [1,2] [2,1] [2,2] [0,3] [1,3] [1,4] [2] [] [1,1,1] [1,-1] [1.0,1] [true,1] "  # noqa: SIM905
    "[4294967296,4294967296] 1 null".split()
)
_MEMBERS = st.sampled_from(
    [
        '"name":"X"',
        '"name":"Z"',
        '"name":7',
        '"datatype":"FP32"',
        '"datatype":"INT64"',
        '"datatype":"FP31"',
        '"shape":[1,1]',
        '"data":[1]',
        '"data":[2]',
        '"data":null',
        '"parameters":{}',
        '"parameters":null',
        '"parameters":{"binary_data_size":4}',
        '"more":[{"deep":[1,2,{"x":null}]}]',
        '"\\u006eame":"X"',
    ]
)
_TOP = st.sampled_from(
    [
        '"id":"a"',
        '"id":"b\\u00e9"',
        '"id":7',
        '"parameters":{"x":1}',
        '"parameters":{"x":[1]}',
        '"parameters":[]',
        '"outputs":[{"name":"Y"}]',
        '"outputs":[]',
        '"outputs":{}',
        '"outputs":[{"name":"Y"},{"name":"Y"}]',
        '"inputs":[]',
        '"inputs":null',
        '"unknown":{"a":[1,2]}',
    ]
)


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, str]:
    """A model's datatype, and a body for it that is more or less right."""
    word = draw(st.sampled_from(WORDS))
    members = ['"name":"X"', f'"datatype":"{word}"', f'"shape":{draw(_SHAPES)}', f'"data":{draw(_DATA)}']
    for extra in draw(st.lists(_MEMBERS, max_size=2)):
        members.insert(draw(st.integers(0, len(members))), extra)
    top = [f'"inputs":[{{{",".join(members)}}}]']
    for extra in draw(st.lists(_TOP, max_size=2)):
        top.insert(draw(st.integers(0, len(top))), extra)
    text = f"{{{','.join(top)}}}"
    if draw(st.integers(0, 4)) == 0:
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(["", ",", "}", "]", '"', "\0", "\ufeff", "x"])) + text[at + 1 :]
    return word, text


def ask(door: Any, word: str, text: str, *, large: bool) -> Answer:
    body = text.encode()
    if large:
        # Spaces before the body, so that both readers are given the same mistakes.
        body = b" " * LARGE_BODY + body
    return door.ask(post(f"/v2/models/{word.lower()}/infer", body))  # type: ignore[no-any-return]


@given(documents())
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@example(("INT64", '{"inputs":[{"name":"X","datatype":"INT64","shape":[1,1],"data":[1],"data":[2]}]}'))
@example(("INT64", '{"inputs":[],"inputs":[{"name":"X","datatype":"INT64","shape":[1,1],"data":[2]}]}'))
@example(("FP64", '{"inputs":[{"name":"X","datatype":"FP64","shape":[1,1],"data":[18446744073709551616]}]}'))
@example(("UINT64", '{"inputs":[{"name":"X","datatype":"UINT64","shape":[1,1],"data":[18446744073709551615]}]}'))
@example(("UINT64", '{"inputs":[{"name":"X","datatype":"UINT64","shape":[1,1],"data":[-1]}]}'))
@example(("FP32", '{"inputs":[{"name":"X","datatype":"FP32","shape":[1,1],"data":[]},]}'))
@example(("BYTES", '{"inputs":[{"name":"X","datatype":"BYTES","shape":[1,1],"data":["\\ud800"]}]}'))
def test_both_readers_agree(door: Any, document: tuple[str, str]) -> None:
    word, text = document
    small, large = (ask(door, word, text, large=large) for large in (False, True))
    assert small.status == large.status, (small.body, large.body)
    assert small.status in (200, 400, 404)
    if small.status == 200:
        assert small.body == large.body
    else:
        assert isinstance(json.loads(small.body)["error"], str)
        assert isinstance(json.loads(large.body)["error"], str)


@pytest.mark.parametrize("large", [False, True])
class TestDuplicates:
    """The last of several equal keys counts, at every level, in both readers."""

    def test_of_a_request(self, door: Any, large: bool) -> None:
        body = (
            '{"id":"first","inputs":5,"inputs":[{"name":"X","datatype":"INT64","shape":[1,1],"data":[7]}],"id":"last"}'
        )
        answer = json.loads(ask(door, "INT64", body, large=large).body)
        assert answer["id"] == "last"
        assert answer["outputs"][0]["data"] == [7]

    def test_of_an_input(self, door: Any, large: bool) -> None:
        body = (
            '{"inputs":[{"name":"Z","shape":[9],"data":["x"],"datatype":"BOOL",'
            '"name":"X","datatype":"INT64","shape":[1,2],"data":[7,8]}]}'
        )
        answer = json.loads(ask(door, "INT64", body, large=large).body)
        assert answer["outputs"][0]["data"] == [7, 8]

    def test_of_parameters(self, door: Any, large: bool) -> None:
        body = (
            '{"inputs":[{"name":"X","datatype":"INT64","shape":[1,1],"data":[7]}],'
            '"outputs":[{"name":"Y","parameters":{"binary_data":true,"binary_data":false}}]}'
        )
        assert json.loads(ask(door, "INT64", body, large=large).body)["outputs"][0]["data"] == [7]


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("depth", [90, 200, 2000, 100_000])
@pytest.mark.parametrize("place", ["data", "parameters", "id", "unknown"])
def test_deep_nesting_is_survived(door: Any, place: str, depth: int, large: bool) -> None:
    deep = "[" * depth + "]" * depth
    members = {"name": '"X"', "datatype": '"INT64"', "shape": "[1,1]", "data": "[1]"}
    top = {"inputs": ""}
    (members if place == "data" else top)[place] = deep
    top["inputs"] = "[{" + ",".join(f'"{key}":{value}' for key, value in members.items()) + "}]"
    text = "{" + ",".join(f'"{key}":{value}' for key, value in top.items()) + "}"
    answer = ask(door, "INT64", text, large=large)
    assert answer.status == (200 if place == "unknown" and depth < 1000 else 400)
    assert answer.body.startswith(b'{"error":"') is (answer.status == 400)


@pytest.mark.parametrize(("datatype", "element"), [("INT8", b"0"), ("BOOL", b"true"), ("BYTES", b'""')])
def test_arrays_longer_than_simdjson_counts(datatype: str, element: bytes) -> None:
    """pysimdjson's as_list writes what lies beyond 2**24 - 1 elements past the end of its list."""
    count = 2**24 + 10
    head = b'{"inputs":[{"name":"X","datatype":"%b","shape":[%d],"data":[' % (datatype.encode(), count)
    document = loads(head + (element + b",") * (count - 1) + element + b"]}]}")
    data = document["inputs"][0]["data"]
    assert len(data) == count
    assert data[-1] == json.loads(element)


def test_of_a_long_array_that_is_no_tensor_only_the_beginning_is_taken() -> None:
    document = loads(b'{"other":[' + b"7," * (2**24 + 9) + b"7]}")
    assert document == {"other": [7] * (MOST_ITEMS + 1)}


@pytest.mark.parametrize("place", ["top", "input"])
def test_many_keys_take_no_longer_than_many_bytes(place: str) -> None:
    keys = ",".join(f'"k{number}":{number}' for number in range(200_000))
    body = f"{{{keys}}}" if place == "top" else f'{{"inputs":[{{{keys}}}]}}'
    start = time.perf_counter()
    document = loads(body.encode())
    assert time.perf_counter() - start < 2
    assert len(document if place == "top" else document["inputs"][0]) == 200_000
