"""Sequences over both doors: sums that grow, controls, ends, and everything a sequence may not be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from judged_case import Case, case
from judged_grpc import call, stream
from judged_http import post
from judged_question import Question, Tensor

BATCHED = {"direct": True, "oldest": False, "named": True}


def _step(model: str, number: int, rows: int = 1, **parameters: Any) -> Question:
    shape = (rows, 1) if BATCHED[model] else (rows,)
    return Question(model, (Tensor("X", "INT32", shape, (number,) * rows),), parameters=parameters)


def stories() -> Iterator[tuple[str, list[Question]]]:
    """Requests that follow one another, each answered before the next."""
    for model in BATCHED:
        for key in (101, "story") if model == "named" else (101,):

            def say(number: int, start: bool = False, end: bool = False, **more: Any) -> Question:
                flags = {"sequence_start": start, "sequence_end": end}
                return _step(model, number, sequence_id=key, **flags, **more)  # noqa: B023 - used at once

            yield f"{model} {key!r}, whole", [say(1, start=True), say(2), say(3), say(4, end=True)]
            yield f"{model} {key!r}, of one", [say(5, start=True, end=True)]
            yield f"{model} {key!r}, again", [say(7, start=True), say(8, start=True), say(9, end=True)]
            yield f"{model} {key!r}, without a start", [say(1), say(1, end=True)]
            yield f"{model} {key!r}, after its end", [say(1, start=True, end=True), say(2)]
            yield f"{model} {key!r}, with a timeout", [say(1, start=True, timeout=3_000_000), say(2, end=True)]
        yield f"{model}, no id", [_step(model, 1, sequence_start=True)]
        yield f"{model}, id 0", [_step(model, 1, sequence_id=0, sequence_start=True)]
        yield f"{model}, no text for an id", [_step(model, 1, sequence_id="", sequence_start=True)]
        yield f"{model}, two rows", [_step(model, 1, rows=2, sequence_id=7, sequence_start=True, sequence_end=True)]
        kinds = {"text for a number": "x", "number for a text": 12}
        for name, key in kinds.items():
            yield f"{model}, {name}", [_step(model, 1, sequence_id=key, sequence_start=True, sequence_end=True)]
        two = [
            _step(model, number, sequence_id=key, sequence_start=number < 2, sequence_end=number > 3)
            for number in range(6)
            for key in (201, 202)
        ]
        yield f"{model}, two at once", two
    yield "ordinary model", [Question("details", (Tensor("X", "INT32", (1,), (1,)),), parameters={"sequence_id": 9})]


def cases() -> Iterator[Case]:
    for name, story in stories():
        yield case(f"http sequence {name}", *(post(one.path, one.json_body()) for one in story))
        yield case(f"grpc sequence {name}", *(call("ModelInfer", one.message(raw=True)) for one in story))
        yield case(f"grpc stream sequence {name}", stream([one.message(raw=True) for one in story]))
