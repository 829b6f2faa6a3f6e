"""The generate extension."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from cases_of_bodies import BROKEN
from judged_case import Case, case
from judged_http import post

BODIES: dict[str, Any] = {
    "one text": {"text": "hello"},
    "an array of one": {"text": ["hello"]},
    "an array of texts": {"text": ["a", "b", "c"]},
    "an empty text": {"text": ""},
    "an empty array": {"text": []},
    "not ASCII": {"text": "ä€😀"},
    "all inputs": {"text": "a", "times": 3, "scale": 0.5, "loud": True},
    "arrays": {"text": ["a"], "times": [2], "scale": [2], "loud": [False]},
    "nested": {"text": "a", "parameters": {"times": 2}},
    "all nested": {"parameters": {"text": "a", "times": 2}},
    "nested twice": {"text": "a", "parameters": {"parameters": {"times": 2}}},
    "parameters": {"text": "a", "x": 1, "y": "z", "z": True, "w": 1.5},
    "nested parameters": {"text": "a", "parameters": {"x": 1}},
    "an id": {"text": "a", "id": "g-1"},
    "a number for an id": {"text": "a", "id": 5},
    "a reserved parameter": {"text": "a", "sequence_id": 5, "priority": 1, "timeout": 5},
    "a reserved prefix": {"text": "a", "triton_x": 5},
    "no input": {},
    "a missing input": {"times": 2},
    "null": {"text": None},
    "a number for a text": {"text": 5},
    "true for a text": {"text": True},
    "an object for a text": {"text": {"a": 1}},
    "nested arrays": {"text": [["a"]]},
    "a text for a number": {"text": "a", "times": "2"},
    "a fraction for a number": {"text": "a", "times": 1.5},
    "too many numbers": {"text": "a", "times": [1, 2]},
    "no number": {"text": "a", "times": []},
    "a number for a bool": {"text": "a", "loud": 1},
    "an array as parameter": {"text": "a", "x": [1]},
    "an object as parameter": {"text": "a", "x": {"y": 1}},
    "null as parameter": {"text": "a", "x": None},
    "a large parameter": {"text": "a", "x": 2**64 - 1},
    "parameters that are an array": {"text": "a", "parameters": [1]},
    "parameters that are text": {"text": "a", "parameters": "x"},
    "parameters that are null": {"text": "a", "parameters": None},
    "infer's form": {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a"]}]},
}
OTHERS: dict[str, tuple[str, Any]] = {
    "rows": ("rows", {"X": [1, 2, 3, 4]}),
    "two rows": ("rows", {"X": [1, 2, 3, 4, 5, 6, 7, 8]}),
    "part of a row": ("rows", {"X": [1, 2, 3]}),
    "grid": ("grid", {"X": [1, 2, 3, 4]}),
    "half a grid": ("grid", {"X": [1, 2, 3]}),
    "open": ("open", {"X": [1, 2]}),
    "bytes for UINT8": ("types", {"IN_UINT8": [0, 255]}),
    "256 for UINT8": ("types", {"IN_UINT8": 256}),
    "every datatype": ("types", {"IN_INT64": -5, "IN_FP64": 0.5, "IN_BOOL": True, "IN_BYTES": "b"}),
    "FP16": ("types", {"IN_FP16": 0.5}),
    "addsub": ("addsub", {"INPUT0": [1, 2, 3, 4], "INPUT1": [1, 1, 1, 1]}),
    "an ensemble": ("chain", {"A": [1, 2, 3, 4], "B": [4, 3, 2, 1]}),
    "a fault": ("faults", {"X": 2}),
    "a fault of its own": ("faults", {"X": -1}),
    "one response": ("repeat", {"X": 5}),
    "three responses": ("repeat", {"X": [1, 2, 3]}),
    "no response": ("repeat", {"X": []}),
    "an error": ("repeat", {"X": -1}),
    "an error first": ("repeat", {"X": [-1, 1]}),
    "an error last": ("repeat", {"X": [1, -1]}),
    "a decoupled ensemble": ("stream", {"X": [4, 5, 6]}),
    "an unknown model": ("nobody", {"X": 1}),
    "a model not loaded": ("unloaded", {"X": 1}),
    "details": ("details", {"X": 1, "p": "q", "id": "i"}),
}


def cases() -> Iterator[Case]:
    for verb in ("generate", "generate_stream"):
        for name, body in BODIES.items():
            yield case(f"http {verb} {name}", post(f"/v2/models/generated/{verb}", body))
        for name, (model, body) in OTHERS.items():
            yield case(f"http {verb} of {name}", post(f"/v2/models/{model}/{verb}", body))
        for name, raw in BROKEN.items():
            yield case(f"http {verb} body of {name}", post(f"/v2/models/generated/{verb}", raw))
        path = f"/v2/models/generated/{verb}"
        yield case(f"http {verb} empty body", post(path))
        good = json.dumps({"text": "a"}).encode()
        yield case(f"http {verb} a version", post(f"/v2/models/generated/versions/1/{verb}", good))
        yield case(f"http {verb} another version", post(f"/v2/models/generated/versions/2/{verb}", good))
        for encoding in ("identity", "gzip", "x", ""):
            yield case(f"http {verb} encoded {encoding!r}", post(path, good, {"Content-Encoding": encoding}))
        yield case(f"http {verb} accepting gzip", post(path, good, {"Accept-Encoding": "gzip"}))
        yield case(f"http {verb} with a length", post(path, good, {"Inference-Header-Content-Length": "5"}))
