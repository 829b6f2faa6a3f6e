"""The gRPC door's part in the trace of a sampled request: when it came in, and when its answers went out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from bident.observe.tracing import Tracing
from bident.wire.infer import InferRequest
from bident.wire.trace import Trace


def begin_trace(
    tracing: Tracing, request: InferRequest, metadata: Mapping[bytes, bytes], waiting_ns: int, received_ns: int
) -> Trace | None:
    """Have ``request``, just read, traced if it is one of those to be. It was waited for from ``waiting_ns`` on."""
    trace = tracing.begin(request, metadata)
    if trace is not None:
        trace.stamp("GRPC_WAITREAD_START", waiting_ns)
        trace.stamp("GRPC_WAITREAD_END", received_ns)
        request.trace = trace
    return trace


@contextmanager
def sending(trace: Trace | None) -> Iterator[None]:
    """An answer is written meanwhile."""
    if trace is not None:
        trace.stamp("GRPC_SEND_START")
    yield
    if trace is not None:
        trace.stamp("GRPC_SEND_END")
