"""HTTP bodies of inferences: every member changed, broken JSON, parameters, lengths, raw tensors, encodings."""

from __future__ import annotations

import copy
import gzip
import json
import zlib
from collections.abc import Iterator
from typing import Any

from judged_case import Case, case
from judged_http import post
from judged_question import text, with_head

PATH = "/v2/models/optional/infer"
GOOD: dict[str, Any] = {
    "id": "m",
    "parameters": {"custom": 1},
    "inputs": [
        {"name": "A", "shape": [2], "datatype": "INT32", "parameters": {}, "data": [3, 4]},
        {"name": "B", "shape": [2], "datatype": "INT32", "data": [1, 2]},
    ],
    "outputs": [{"name": "Y", "parameters": {"binary_data": False}}],
}
PLACES: tuple[tuple[Any, ...], ...] = (
    ("id",),
    ("parameters",),
    ("inputs",),
    ("inputs", 0),
    ("inputs", 0, "name"),
    ("inputs", 0, "shape"),
    ("inputs", 0, "shape", 0),
    ("inputs", 0, "datatype"),
    ("inputs", 0, "parameters"),
    ("inputs", 0, "data"),
    ("inputs", 0, "data", 0),
    ("outputs",),
    ("outputs", 0),
    ("outputs", 0, "name"),
    ("outputs", 0, "parameters"),
    ("outputs", 0, "parameters", "binary_data"),
    ("outputs", 0, "parameters", "classification"),
)
STAND_INS: dict[str, Any] = {
    **{"null": None, "true": True, "false": False, "zero": 0, "one": 1, "minus": -1, "fraction": 1.5, "large": 2**40},
    **{"larger": 2**64, "text": "x", "no text": "", "array": [], "object": {}, "nested": [[1]], "objects": [{}]},
}
KINDS: dict[str, Any] = {
    **{"true": True, "zero": 0, "one": 1, "minus": -1, "large": 2**63, "larger": 2**64, "fraction": 0.5, "text": "a"},
    **{"no text": "", "digits": "5", "null": None, "array": [1], "object": {}},
}
KEYS = (
    *("sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "binary_data_output", "custom"),
    *("triton_x", "triton_enable_empty_final_response", "headers", ""),
)

BROKEN: dict[str, bytes] = {
    "blank": b"  \n",
    "a brace": b"{",
    "two braces": b"{}",
    "an array": b"[]",
    "a number": b"5",
    "a string": b'"x"',
    "null": b"null",
    "true": b"true",
    "text": b"hello",
    "cut": json.dumps(GOOD).encode()[:-5],
    "more behind": json.dumps(GOOD).encode() + b"x",
    "two documents": json.dumps(GOOD).encode() * 2,
    "blank around": b" \n" + json.dumps(GOOD).encode() + b"\n ",
    "NUL behind": json.dumps(GOOD).encode() + b"\0",
    "byte order mark": b"\xef\xbb\xbf" + json.dumps(GOOD).encode(),
    "UTF-16": json.dumps(GOOD).encode("utf-16"),
    "single quotes": str(GOOD).encode(),
    "trailing comma": b'{"inputs":[],}',
    "comment": b'{/* no */"inputs":[]}',
    "bad escape": b'{"id":"\\x","inputs":[]}',
    "lone surrogate": b'{"id":"\\ud800","inputs":[{"name":"A","shape":[1],"datatype":"INT32","data":[1]}]}',
    "bytes that are not UTF-8": b'{"id":"\xff","inputs":[{"name":"A","shape":[1],"datatype":"INT32","data":[1]}]}',
    "control character": b'{"id":"\n","inputs":[]}',
    "NaN": b'{"inputs":[{"name":"A","shape":[1],"datatype":"INT32","data":[NaN]}]}',
    "plus": b'{"inputs":[{"name":"A","shape":[1],"datatype":"INT32","data":[+1]}]}',
    "leading zero": b'{"inputs":[{"name":"A","shape":[1],"datatype":"INT32","data":[01]}]}',
    "exponent": b'{"inputs":[{"name":"A","shape":[1],"datatype":"INT32","data":[1e1]}]}',
    "key twice": b'{"id":"a","id":"b","inputs":[{"name":"A","shape":[1],"datatype":"INT32","data":[1]}]}',
    "inputs twice": b'{"inputs":[],"inputs":[{"name":"A","shape":[1],"datatype":"INT32","data":[1]}]}',
    "unknown keys": b'{"x":{"y":[1]},"inputs":[{"name":"A","shape":[1],"datatype":"INT32","data":[1],"z":null}]}',
    "deep": b'{"inputs":' + b"[" * 50 + b"]" * 50 + b"}",
    "HTML": b"<html></html>",
}


def mutations() -> Iterator[Case]:
    for place in PLACES:
        where = ".".join(map(str, place))
        for name, value in STAND_INS.items():
            if (place[-1], name) == (0, "large") and "shape" in place:
                continue  # a terabyte: it ends a real Triton
            document = copy.deepcopy(GOOD)
            _holder(document, place)[place[-1]] = value
            yield case(f"http body {where} is {name}", post(PATH, document))
        document = copy.deepcopy(GOOD)
        if isinstance(place[-1], str) and place[-1] in _holder(document, place):
            del _holder(document, place)[place[-1]]
            yield case(f"http body without {where}", post(PATH, document))


def _holder(document: Any, place: tuple[Any, ...]) -> Any:
    for key in place[:-1]:
        document = document[key]
    return document


def broken() -> Iterator[Case]:
    for name, body in BROKEN.items():
        yield case(f"http body of {name}", post(PATH, body))
        if body.strip():
            yield case(f"http head of {name}", post(PATH, body, {"Inference-Header-Content-Length": str(len(body))}))


def parameters() -> Iterator[Case]:
    given = [{"name": "X", "shape": [1], "datatype": "INT32", "data": [1]}]
    for key in KEYS:
        for name, value in KINDS.items():
            body = {"parameters": {key: value}, "inputs": given}
            yield case(f"http parameter {key or 'of no name'} is {name}", post("/v2/models/details/infer", body))
    for name, value in KINDS.items():
        item = {**given[0], "parameters": {"custom": value}}
        yield case(f"http input parameter is {name}", post("/v2/models/details/infer", {"inputs": [item]}))
        wanted = [{"name": "Y", "parameters": {"custom": value}}]
        body = {"inputs": given, "outputs": wanted}
        yield case(f"http output parameter is {name}", post("/v2/models/details/infer", body))


def data() -> Iterator[Case]:
    """JSON elements of the wrong type, the wrong number, out of range, nested."""
    elements: dict[str, Any] = {
        **{"true": True, "zero": 0, "minus": -1, "256": 256, "2**31": 2**31, "2**32": 2**32, "2**63": 2**63},
        **{"2**64": 2**64, "-2**63 - 1": -(2**63) - 1, "a fraction": 1.5, "1.0": 1.0, "1e39": 1e39, "1e308": 1e308},
        **{"text": "x", "no text": "", "null": None, "an array": [1], "an object": {}},
    }
    for datatype in ("BOOL", "UINT8", "INT8", "UINT16", "INT32", "UINT32", "INT64", "UINT64", "FP32", "FP64", "BYTES"):
        for name, element in elements.items():
            item = {"name": f"IN_{datatype}", "shape": [1], "datatype": datatype, "data": [element]}
            yield case(f"http {datatype} of {name}", post("/v2/models/types/infer", {"inputs": [item]}))
    for name, (shape, given) in {
        "nested": ([2, 2], [[1, 2], [3, 4]]),
        "nested otherwise": ([2, 2], [[1, 2, 3], [4]]),
        "nested deeper": ([2, 2], [[[1]], [[2]], [[3]], [[4]]]),
        "mixed": ([2, 2], [1, [2, 3], 4]),
        "too few": ([2, 2], [1, 2, 3]),
        "too many": ([2, 2], [1, 2, 3, 4, 5]),
        "empty": ([2, 2], []),
        "empty, rightly": ([2, 0], []),
        "empty arrays": ([2, 0], [[], []]),
        "scalar": ([2, 1], 1),
    }.items():
        item = {"name": "X", "shape": shape, "datatype": "INT64", "data": given}
        yield case(f"http data {name}", post("/v2/models/grid/infer", {"inputs": [item]}))


def lengths() -> Iterator[Case]:
    """Where the JSON ends, what each tensor takes, what is left."""
    item = {"name": "A", "shape": [2], "datatype": "INT32", "parameters": {"binary_data_size": 8}}
    body, headers = with_head({"inputs": [item]}, b"\1\0\0\0\2\0\0\0")
    size = int(headers["Inference-Header-Content-Length"])
    for name, value in {
        "right": str(size),
        "one less": str(size - 1),
        "one more": str(size + 1),
        "all": str(len(body)),
        "more than all": str(len(body) + 1),
        "negative": "-1",
        "zero": "0",
        "text": "x",
        "empty": "",
        "fraction": "10.5",
        "plus": f"+{size}",
        "blank before": f" {size}",
        "huge": "9" * 30,
        "hexadecimal": hex(size),
    }.items():
        yield case(f"http length {name}", post(PATH, body, {"Inference-Header-Content-Length": value}))
    yield case("http no length", post(PATH, body))
    for name, value in {**STAND_INS, "right": 8, "less": 4, "more": 12}.items():
        given = {**item, "parameters": {"binary_data_size": value}}
        yield case(f"http binary size {name}", post(PATH, *with_head({"inputs": [given]}, b"\1\0\0\0\2\0\0\0")))
    other = {"name": "B", "shape": [2], "datatype": "INT32", "data": [5, 6]}
    for name, inputs in {
        "binary, then json": [item, other],
        "json, then binary": [other, item],
        "both in one": [{**item, "data": [1, 2]}],
        "neither": [{key: value for key, value in item.items() if key != "parameters"}],
    }.items():
        yield case(f"http {name}", post(PATH, *with_head({"inputs": inputs}, b"\1\0\0\0\2\0\0\0")))
    for rest in (b"\0", b"\0" * 8, text(b"x")):
        yield case(f"http {len(rest)} bytes too many", post(PATH, body + rest, headers))
    yield case("http binary part missing", post(PATH, body[:size], headers))


def raw() -> Iterator[Case]:
    headers = {"Inference-Header-Content-Length": "0"}
    for model, sizes in {
        "grid": (0, 8, 16, 32, 24, 15),
        "rows": (0, 16, 32, 12),
        "open": (0, 4, 16),
        "text_rows": (0, 1, 5, 100),
        "texts": (0, 3),
        "addsub": (32,),
        "versions": (0, 4, 12, 3),
        "slow": (0, 8),
        "repeat": (4,),
    }.items():
        for size in sizes:
            body = b"a" * size if "text" in model else b"\0" * size
            yield case(f"http raw {size} bytes to {model}", post(f"/v2/models/{model}/infer", body, headers))
    yield case("http empty body", post("/v2/models/versions/infer"))
    yield case("http empty body for strings", post("/v2/models/text_rows/infer"))


def encodings() -> Iterator[Case]:
    body = json.dumps(GOOD).encode()
    for name, (encoding, packed) in {
        "gzip": ("gzip", gzip.compress(body)),
        "GZIP": ("GZIP", gzip.compress(body)),
        "deflate": ("deflate", zlib.compress(body)),
        "raw deflate": ("deflate", zlib.compress(body)[2:-4]),
        "identity": ("identity", body),
        "none": ("", body),
        "brotli": ("br", body),
        "two": ("gzip, deflate", body),
        "gzip that is not": ("gzip", body),
        "deflate that is not": ("deflate", body),
        "gzip cut": ("gzip", gzip.compress(body)[:-10]),
        "gzip of nothing": ("gzip", gzip.compress(b"")),
        "nothing as gzip": ("gzip", b""),
    }.items():
        yield case(f"http content-encoding {name}", post(PATH, packed, {"Content-Encoding": encoding}))
    for accepted in (
        *("gzip", "deflate", "identity", "br", "*", "", "gzip, deflate", "deflate, gzip", "gzip;q=0", "gzip;q=0.5"),
        *("gzip;q=0.5, deflate;q=0.8", "identity;q=0.9, gzip;q=0.2", "gzip;q=1.0, identity;q=0.5", "GZIP", "br, gzip"),
        *("*;q=0.1", "gzip;q=x", "identity;q=0", "gzip;q=0.8,deflate;q=0.8"),
    ):
        yield case(f"http accept-encoding {accepted!r}", post(PATH, body, {"Accept-Encoding": accepted}))
    yield case("http accept-encoding of an error", post(PATH, b"{}", {"Accept-Encoding": "gzip"}))
    for content_type in (
        "application/json",
        "text/plain",
        "application/octet-stream",
        "application/x-www-form-urlencoded",
    ):
        yield case(f"http content-type {content_type}", post(PATH, body, {"Content-Type": content_type}))


def headers() -> Iterator[Case]:
    """Headers that models are to see."""
    body = {"inputs": [{"name": "X", "shape": [1], "datatype": "INT32", "data": [1]}]}
    for name, sent in {
        "one": {"x-judged-a": "b"},
        "of large letters": {"X-JUDGED-A": "B"},
        "mixed letters": {"X-Judged-Abc": "d"},
        "two": {"x-judged-a": "b", "x-judged-c": "d"},
        "that is empty": {"x-judged-a": ""},
        "another": {"x-other": "b"},
        "one with more before": {"my-x-judged-a": "b"},
    }.items():
        yield case(f"http header forwarded, {name}", post("/v2/models/details/infer", body, sent))
    also = {**body, "parameters": {"x-judged-a": 5}}
    yield case("http header forwarded beside a parameter", post("/v2/models/details/infer", also, {"x-judged-a": "b"}))


def cases() -> Iterator[Case]:
    for family in (mutations, broken, parameters, data, lengths, raw, encodings, headers):
        yield from family()
