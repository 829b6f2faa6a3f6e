"""What a real Triton 2.51 ends at, or never answers: Bident alone is asked."""

from __future__ import annotations

from typing import Any

from judged_grpc import stream
from judged_http import post
from judged_question import Question, text, vector, with_head

_BYTES = Question("types", (vector("IN_BYTES", "BYTES", b"a", b"b"),), (("OUT_BYTES", {"classification": 1}),))
_VAST = {"inputs": [{"name": "A", "shape": [2**40], "datatype": "INT32", "data": [1]}]}
_NO_TEXT = {
    "inputs": [{"name": "IN_BYTES", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 6}}],
}
_STRICT = (("triton_grpc_error", "true"),)

FATAL: dict[str, tuple[Any, int | str, str]] = {
    "classes of strings": (post(_BYTES.path, _BYTES.json_body()), 400, "unsupported type 'BYTES'"),
    "a tensor of terabytes": (post("/v2/models/optional/infer", _VAST), 400, "Shape does not match true shape"),
    "bytes that are no text, as JSON": (
        post("/v2/models/types/infer", *with_head(_NO_TEXT, text(b"\xff\xfe"))),
        400,
        "not UTF-8",
    ),
    "an error of a stream that is to end at it": (
        stream([Question("repeat", (vector("X", "INT32", 1, -2, 3),)).message(raw=True)], metadata=_STRICT),
        "INTERNAL",
        "no -2",
    ),
}
"""What is asked, the status of the answer, and a part of it."""
