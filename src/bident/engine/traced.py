"""Follows a sampled request from its model's door to its last answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bident.wire.infer import InferRequest, InferResponse, Outcome
from bident.wire.trace import Trace, TracedSpent


def follow(request: InferRequest, trace: Trace, *, runs: bool) -> None:
    """Have ``trace`` note every answer to ``request``. ``runs``: its model computes, and does not only ask others."""
    if runs:
        request.spent = TracedSpent(trace, request, request.spent)
    request.reply = partial(_reply, trace, request.reply)


def _reply(trace: Trace, reply: Callable[[InferResponse], Outcome], response: InferResponse) -> Outcome:
    trace.answer(response)
    outcome = Outcome.FAILED
    try:
        outcome = reply(response)
    finally:
        if response.final and outcome is not Outcome.LATER:
            trace.end()
    return outcome
