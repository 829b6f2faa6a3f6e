"""The HTTP door's part in the trace of a sampled request: when it came in, and when its answers went out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic_ns

from bident.doors.http.exchange import Exchange
from bident.observe.tracing import Tracing
from bident.wire.infer import InferRequest, InferResponse, Outcome
from bident.wire.trace import Trace

_START, _END = "HTTP_SEND_START", "HTTP_SEND_END"


def begin_trace(tracing: Tracing, exchange: Exchange, request: InferRequest) -> None:
    """Have ``request``, just read and with its ``reply`` set, traced if it is one of those to be."""
    trace = tracing.begin(request, exchange.headers)
    if trace is None:
        return
    trace.stamp("HTTP_RECV_START", exchange.begun_ns or exchange.received_ns)
    trace.stamp("HTTP_RECV_END", exchange.received_ns)
    request.trace = exchange.trace = trace
    request.reply = partial(_reply, exchange, trace, request.reply)


@contextmanager
def sending(exchange: Exchange) -> Iterator[None]:
    """An answer that took long to encode is written meanwhile."""
    trace = exchange.trace
    if trace is not None:
        trace.stamp(_START)
    yield
    if trace is not None:
        trace.stamp(_END)


def _reply(
    exchange: Exchange, trace: Trace, reply: Callable[[InferResponse], Outcome], response: InferResponse
) -> Outcome:
    start_ns = monotonic_ns()
    outcome = reply(response)
    says_something = bool(response.columns) or response.error is not None
    if says_something and outcome is not Outcome.LATER and not exchange.abandoned:
        trace.stamp(_START, start_ns)
        trace.stamp(_END)
    return outcome
