"""Inferences in both protocols and all their forms: every datatype, shapes, batches, classes, ensembles, calls."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Iterator
from typing import Any

import grpc
from judged_case import Case, case
from judged_grpc import call, stream
from judged_http import post
from judged_question import CONTENTS, Question, Tensor, text, vector, with_head
from judged_repository import DATATYPES

_TINY = {"FP16": 2.0**-24, "FP32": 2.0**-149, "FP64": 5e-324, "BF16": 2.0**-133}
_LARGEST = {"FP16": 65504.0, "FP32": float.fromhex("0x1.fffffep+127"), "FP64": 1.7976931348623157e308, "BF16": 2.0**120}


def values(datatype: str) -> dict[str, tuple[Any, ...]]:
    """Values worth a tensor each."""
    if datatype == "BOOL":
        return {"one": (True,), "three": (True, False, True), "none": (), "many": (True, False) * 300}
    if datatype == "BYTES":
        said = "ünïcode €".encode()
        return {
            "one": (b"a",),
            "empty string": (b"",),
            "three": (b"a", b"", said),
            "none": (),
            "many": tuple(b"%d" % number for number in range(300)),
            "controls": (b'\x01\t\n"\\/', b"\x7f"),
            "long": (b"x" * 70000,),
        }
    if datatype.startswith(("FP", "BF")):
        low = _TINY[datatype]
        return {
            "one": (1.5,),
            "three": (-0.5, 0.25, 3.0),
            "zeros": (0.0, -0.0),
            "none": (),
            "limits": (low, -low, _LARGEST[datatype], -_LARGEST[datatype]),
            "fractions": (0.125, 7.0, -96.0) if datatype in ("FP16", "BF16") else (0.1, 1 / 3, -2.7, 1e10),
            "many": tuple(number / 4 for number in range(-100, 100)),
        }
    bits = int(datatype.lstrip("UINT"))
    low, high = (0, 2**bits - 1) if datatype.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return {
        "one": (1,),
        "three": (1, 2, 3),
        "none": (),
        "limits": (low, high),
        "many": tuple(range(100)) * 3,
    }


def identities() -> Iterator[tuple[str, Question]]:
    for datatype in DATATYPES:
        for name, given in values(datatype).items():
            yield f"{datatype}, {name}", Question("types", (vector(f"IN_{datatype}", datatype, *given),))


def _rows(count: int, width: int = 4) -> Tensor:
    return Tensor("X", "FP32", (count, width), tuple(number / 2 for number in range(count * width)))


def _pair(
    count: int = 1, width: int = 4, datatype: str = "INT32", names: tuple[str, str] = ("INPUT0", "INPUT1")
) -> Any:
    numbers = tuple(range(count * width))
    return tuple(Tensor(name, datatype, (count, width), numbers) for name in names)


def shapes() -> Iterator[tuple[str, Question]]:
    for count in range(11):
        yield f"{count} rows", Question("rows", (_rows(count),))
    for width in (0, 1, 3, 5):
        yield f"rows of {width}", Question("rows", (_rows(2, width),))
    for shape in ((), (4,), (1, 1, 4), (2, 2), (1, 2, 2)):
        count = math.prod(shape)
        yield f"rows of shape {list(shape)}", Question("rows", (Tensor("X", "FP32", shape, (1.0,) * count),))
    for shape in ((2, 1), (2, 3), (2, 0), (1, 2), (3, 2), (2,), (2, 2, 1), ()):
        count = math.prod(shape)
        yield f"grid of shape {list(shape)}", Question("grid", (Tensor("X", "INT64", shape, tuple(range(count))),))
    for shape in ((1, 1), (0, 5), (3, 2), (1,)):
        count = math.prod(shape)
        yield f"open, {list(shape)}", Question("open", (Tensor("X", "FP32", shape, (2.5,) * count),))


def mistakes() -> Iterator[tuple[str, Question]]:
    for datatype in DATATYPES:
        given = (True,) if datatype == "BOOL" else (b"1",) if datatype == "BYTES" else (1,)
        for model, name in (("optional", "A"), ("texts", "X"), ("open", "X")):
            yield f"{datatype} to {model}", Question(model, (vector(name, datatype, *given),))
    one, two = _pair()
    yield "no input", Question("addsub", ())
    yield "no input to what needs none", Question("types", ())
    yield "one input of two", Question("addsub", (one,))
    yield "the other input of two", Question("addsub", (two,))
    yield "one too many", Question("addsub", (one, two, vector("THIRD", "INT32", 1)))
    yield "a wrong name", Question("addsub", _pair(names=("INPUT0", "INPUT2")))
    yield "a name twice", Question("addsub", (one, one))
    yield "another order", Question("addsub", (two, one))
    yield "batches that differ", Question("addsub", (_pair(1)[0], _pair(2)[1]))
    yield "widths that differ", Question("addsub", (_pair(1)[0], _pair(1, 5)[1]))
    yield "an optional one left out", Question("optional", (vector("A", "INT32", 1, 2),))
    yield "an optional one given", Question("optional", (vector("A", "INT32", 1, 2), vector("B", "INT32", 3, 4)))
    yield "only an optional one", Question("optional", (vector("B", "INT32", 3, 4),))
    yield "three for two", Question("optional", tuple(vector(name, "INT32", 1) for name in "ABC"))
    for model in ("nobody", "unloaded", "broken", "", "a b", "../x", "rows/"):
        yield f"model {model!r}", Question(model, (_rows(1),))
    for version in ("1", "2", "3", "0", "01", "99999999999999999999", "x", "-1", "1.0"):
        yield f"version {version!r}", Question("versions", (vector("X", "INT32", 1),), version=version)
    yield "no version", Question("versions", (vector("X", "INT32", 1),))


def outputs() -> Iterator[tuple[str, Question]]:
    for name, wanted in {
        "one": ("OUTPUT0",),
        "the other": ("OUTPUT1",),
        "both": ("OUTPUT0", "OUTPUT1"),
        "turned": ("OUTPUT1", "OUTPUT0"),
        "twice": ("OUTPUT0", "OUTPUT0"),
        "unknown": ("OUTPUT2",),
        "known and unknown": ("OUTPUT0", "x"),
        "of no name": ("",),
    }.items():
        yield f"outputs, {name}", Question("addsub", _pair(2), tuple((one, {}) for one in wanted), id="o-1")
    for count in (0, 1, 2, 3, 4, 5, 1000):
        for rows in (1, 3):
            form = {"classification": count}
            yield f"{count} classes of {rows}", Question("addsub", _pair(rows), (("OUTPUT0", form), ("OUTPUT1", form)))
        yield f"{count} classes of FP32", Question("rows", (_rows(2),), (("Y", {"classification": count}),))
    for datatype in DATATYPES[:-1]:  # classes of BYTES end a real Triton
        given = values(datatype)["three"]
        wanted = ((f"OUT_{datatype}", {"classification": 2}),)
        yield f"classes of {datatype}", Question("types", (vector(f"IN_{datatype}", datatype, *given),), wanted)
    ties = Tensor("X", "FP32", (1, 4), (2.0, 5.0, 5.0, -1.0))
    yield "classes that tie", Question("rows", (ties,), (("Y", {"classification": 4}),))


def wholes() -> Iterator[tuple[str, Question]]:
    """Questions to the models that are more than one tensor."""
    for name in ("", "1", "é", "a" * 300, "with space", '"quoted"', "\n"):
        yield f"id {name[:9]!r}", Question("details", (vector("X", "INT32", 1),), id=name)
    yield "details of outputs", Question("details", (vector("X", "INT32", 1),), (("Y", {}),))
    for number in range(-1, 10):
        yield f"fault {number}", Question("faults", (vector("X", "INT32", number),), id="f")
        yield f"fault {number} in an ensemble", Question("failing", (vector("X", "INT32", number),))
    for rows in (1, 2, 8, 9):
        yield f"ensemble of {rows}", Question("chain", _pair(rows, names=("A", "B")), id="e")
    yield "ensemble, one output", Question("chain", _pair(names=("A", "B")), (("REST", {}),))
    yield "ensemble, classes", Question("chain", _pair(names=("A", "B")), (("SUM", {"classification": 2}),))
    yield "ensemble, a wrong shape", Question("chain", _pair(1, 3, names=("A", "B")))
    yield "ensemble, an input missing", Question("chain", _pair(names=("A", "B"))[:1])
    yield "ensemble, a wrong datatype", Question("chain", _pair(1, datatype="INT64", names=("A", "B")))
    given = Tensor("X", "INT32", (1, 4), (1, 2, 3, 4))
    yield "a model asks", Question("asks", (given,))
    for model in ("nobody", "counted", "unloaded", "rows", "repeat"):
        yield f"a model asks {model}", Question("asks", (given, vector("MODEL", "BYTES", model.encode())))
    for count in (1, 2, 5):
        yield f"strings in {count} rows", Question("text_rows", (Tensor("X", "BYTES", (count, 1), (b"ab",) * count),))
    yield "strings", Question("texts", (vector("X", "BYTES", b"a", b"", "ä".encode()),), id="t")
    yield "decoupled", Question("repeat", (vector("X", "INT32", 1, 2),))
    for wanted in (("Y",), ("Z",), ("Y", "Z")):
        named = tuple((one, {}) for one in wanted)
        yield f"not all that is declared, {'+'.join(wanted)}", Question("partial", (vector("X", "INT32", 1),), named)
    yield "not all that is declared", Question("partial", (vector("X", "INT32", 1),))
    yield "cached", Question("cached", (vector("X", "INT32", 7, 8, 9),))
    for level in (0, 1, 2, 3, 4, 100):
        yield f"priority {level}", Question("levels", _pair(), parameters={"priority": level})
    for timeout in (0, 1_000_000, 6_000_000):
        yield f"timeout {timeout}", Question("levels", _pair(), parameters={"timeout": timeout})


def _questions() -> Iterator[tuple[str, Question]]:
    for family, made in (
        ("identity", identities()),
        ("shape", shapes()),
        ("mistake", mistakes()),
        ("output", outputs()),
        ("whole", wholes()),
    ):
        for name, question in made:
            yield f"{family}: {name}", question


def over_http() -> Iterator[Case]:
    for name, question in _questions():
        if not question.model or " " in question.model:
            continue
        path, (binary, headers) = question.path, question.binary_body()
        yield case(f"http json {name}", post(path, question.json_body()))
        yield case(f"http binary {name}", post(path, binary, headers))
        if name.startswith(("identity", "output", "whole")) and not question.outputs:
            both = question.binary_body(parameters={**question.parameters, "binary_data_output": True})
            yield case(f"http binary both ways {name}", post(path, *both))
    for name, question in identities():
        if name.endswith(("many", "one")):
            yield from _packed(name, question)


def _packed(name: str, question: Question) -> Iterator[Case]:
    plain, (binary, headers) = question.json_body(), question.binary_body()
    for encoding, pack in (("gzip", gzip.compress), ("deflate", zlib.compress)):
        accepting = {"Content-Encoding": encoding, "Accept-Encoding": encoding}
        yield case(f"http {encoding} {name}", post(question.path, pack(plain), accepting))
        yield case(f"http {encoding} binary {name}", post(question.path, pack(binary), {**headers, **accepting}))


def over_grpc() -> Iterator[Case]:
    for name, question in _questions():
        if all(one.datatype in CONTENTS for one in question.inputs):
            yield case(f"grpc typed {name}", call("ModelInfer", question.message(raw=False)))
        yield case(f"grpc raw {name}", call("ModelInfer", question.message(raw=True)))
        if name.startswith(("output", "whole", "mistake")):
            yield case(f"grpc stream {name}", stream([question.message(raw=True)]))
    for name, question in identities():
        if name.endswith("many"):
            for compression in (grpc.Compression.Gzip, grpc.Compression.Deflate):
                message = question.message(raw=True)
                yield case(
                    f"grpc {compression.name.lower()} {name}", call("ModelInfer", message, compression=compression)
                )


def binary_parts() -> Iterator[Case]:
    """Binary tensors whose bytes are not what they say."""
    path = "/v2/models/types/infer"
    for name, datatype, shape, raw in (
        ("too short", "INT32", [2], b"\0" * 4),
        ("too long", "INT32", [1], b"\0" * 8),
        ("nothing", "INT32", [1], b""),
        ("odd", "INT16", [2], b"\0" * 3),
        ("bool of 7", "BOOL", [2], b"\x07\0"),
        ("NaN", "FP32", [3], b"\0\0\xc0\x7f\0\0\x80\x7f\0\0\x80\xff"),
        ("NaN of 64", "FP64", [1], b"\0\0\0\0\0\0\xf8\x7f"),
        ("not UTF-8", "BYTES", [1], text(b"\xff\xfe")),
        ("string cut", "BYTES", [1], text(b"abc")[:-1]),
        ("string length cut", "BYTES", [1], b"\1\0"),
        ("string too many", "BYTES", [1], text(b"a", b"b")),
        ("string too few", "BYTES", [3], text(b"a", b"b")),
        ("string length beyond", "BYTES", [1], b"\xff\xff\xff\xff"),
        ("string and rest", "BYTES", [1], text(b"a") + b"\0"),
    ):
        given = {"name": f"IN_{datatype}", "shape": shape, "datatype": datatype}
        request = Question("types", (), outputs=()).message(raw=True)
        request.inputs.add(**given)
        request.raw_input_contents.append(raw)
        yield case(f"grpc raw bytes, {name}", call("ModelInfer", request))
        given["parameters"] = {"binary_data_size": len(raw)}
        for form in (True, False):
            if name == "not UTF-8" and not form:
                continue  # a real Triton never answers
            outputs = [{"name": f"OUT_{datatype}", "parameters": {"binary_data": form}}]
            body, headers = with_head({"inputs": [given], "outputs": outputs}, raw)
            yield case(f"http bytes, {name}, {'binary' if form else 'json'}", post(path, body, headers))


def cases() -> Iterator[Case]:
    for family in (over_http, over_grpc, binary_parts):
        yield from family()
