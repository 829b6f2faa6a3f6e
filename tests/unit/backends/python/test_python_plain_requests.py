"""Which requests go to a worker as nothing but their inputs: those that say nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from bident.backends.python.instance import _are_plain
from bident.observe.trace_settings import TraceSetting, TraceStart
from bident.observe.tracing import Tracing
from bident.wire.infer import InferRequest


def request(**said: Any) -> InferRequest:
    made = InferRequest("m", "", said.pop("id", ""), {}, 1)
    made.batch_size = 1
    for name, value in said.items():
        setattr(made, name, value)
    return made


def test_requests_that_say_nothing_are_plain() -> None:
    assert _are_plain([request(), request()])


@pytest.mark.parametrize(
    "said",
    [
        {"id": "r"},
        {"batch_size": 2},
        {"outputs": ["Y"]},
        {"parameters": {"a": 1}},
        {"timeout_us": 1},
        {"priority": 1},
        {"sequence_id": 1},
        {"sequence_id": "s"},
        {"sequence_start": True},
        {"sequence_end": True},
    ],
    ids=str,
)
def test_whatever_else_one_says_reaches_the_model(said: dict[str, Any]) -> None:
    assert not _are_plain([request(), request(**said)])


def test_a_traced_request_is_not_plain() -> None:
    traced = request()
    tracing = Tracing(TraceStart(TraceSetting(frozenset({"TIMESTAMPS"}), 1), "nowhere"))
    traced.trace = tracing.begin(traced, {})
    assert traced.trace is not None
    assert not _are_plain([traced])
