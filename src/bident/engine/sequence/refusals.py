"""Why requests of sequences are refused or given up: Triton's words, and what to do."""

from __future__ import annotations

from bident.errors import Code, ServeError, invalid_arg
from bident.wire.infer import InferRequest
from bident.wire.shown import shown


def without_start(request: InferRequest) -> ServeError:
    """What is answered to a request that belongs to no sequence under way."""
    return invalid_arg(
        f"inference request for sequence {_told(request.sequence_id)} to model '{request.model_name}' must specify the "
        "START flag on the first request of the sequence: it has not started, has ended, or was idle for longer than "
        "max_sequence_idle_microseconds"
    )


def without_id(request: InferRequest) -> ServeError:
    """What is answered to a request that does not say which sequence it belongs to."""
    return invalid_arg(
        f"inference request to model '{request.model_name}' must specify a non-zero or non-empty correlation ID: "
        "send the parameter sequence_id"
    )


def lost(identity: int | str, model: str) -> ServeError:
    """What is answered to the requests of a sequence whose instance, which knew what came before, has gone."""
    return ServeError(
        Code.UNAVAILABLE,
        f"sequence {_told(identity)} has ended: the instance of model '{model}' that served it has gone, and what it "
        "knew of the sequence; start it again",
    )


def cancelled() -> ServeError:
    """What is answered to a request whose client has gone, and to those that follow it in its sequence."""
    return ServeError(Code.CANCELLED, "request cancelled by the client, or one before it in its sequence")


def expired() -> ServeError:
    """What is answered to a sequence that waited for longer than the timeout of one of its requests."""
    return ServeError(
        Code.UNAVAILABLE,
        "timeout of the corresponding sequence has been expired: all slots were taken by other sequences; try again "
        "later, or raise max_batch_size (with oldest: max_candidate_sequences) or the instance count",
    )


def stopping() -> ServeError:
    """What is answered to a new sequence while those under way may still end."""
    return ServeError(
        Code.UNAVAILABLE,
        "Server is stopping, scheduler for model has stopped accepting new inference requests",
    )


def _told(identity: int | str) -> str:
    return shown(identity)[1:-1] if isinstance(identity, str) else str(identity)
