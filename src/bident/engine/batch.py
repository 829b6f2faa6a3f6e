"""Requests that run together, and what became of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from bident.engine.merge import Merge
from bident.errors import Code, ServeError
from bident.wire.infer import Column, InferRequest

logger = logging.getLogger("bident.engine")


class Batch:
    """``requests`` with ``rows`` rows in all, and afterwards ``columns`` or ``error``. Clocks are monotonic ns.

    ``failed`` are requests that were taken out because their own values do not fit.
    """

    # Defaults live on the class: a batch is made per execution, and most never differ from them.
    columns: Sequence[Column] = ()
    failed: Sequence[tuple[InferRequest, ServeError]] = ()
    undeclared: Sequence[str] = ()
    """Outputs that the model gave last, and its config does not declare."""
    apart: Sequence[Sequence[Column]] | None = None
    """The outputs of each request, where they cannot be rows of ``columns`` (see ``ragged``)."""
    error: ServeError | None = None
    start_ns: int = 0
    infer_start_ns: int = 0
    infer_end_ns: int = 0
    done: bool = False
    counted: bool = False

    def __init__(self, requests: list[InferRequest], rows: int) -> None:
        self.requests = requests
        self.rows = rows

    @cached_property
    def replies(self) -> list[tuple[InferRequest, Sequence[Column] | ServeError, dict[str, Any] | None]]:
        """Last answers to single requests that must wait until earlier batches have been answered."""
        return []


def gather(merge: Merge, batch: Batch, model: str) -> dict[str, NDArray[Any]] | None:
    """The input arrays of ``batch``, or None when no request of it is fit to run.

    Whatever one request's values cause costs only that request its answer: it goes to ``batch.failed``.
    """
    try:
        return merge.gather(batch.requests, batch.rows)
    except Exception:  # noqa: BLE001 - the search below finds out whose it is, and logs what it must
        _remove_unfit(merge, batch, model)
        return merge.gather(batch.requests, batch.rows) if batch.requests else None


def gather_apart(merge: Merge, batch: Batch, model: str) -> list[dict[str, NDArray[Any]]] | None:
    """As ``gather`` for a model that sees single requests, which may differ in shape: the arrays of each."""
    try:
        return [merge.gather([request], request.batch_size) for request in batch.requests]
    except Exception:  # noqa: BLE001 - as in ``gather``
        _remove_unfit(merge, batch, model)
        return gather_apart(merge, batch, model) if batch.requests else None


def failure(model: str, error: BaseException) -> ServeError:
    """Whatever an instance of ``model`` raised, as one line for the client."""
    what = f"{type(error).__name__}: {_first_line(error)}"
    return ServeError(Code.INTERNAL, f"model '{model}' failed to execute: {what}")


def _remove_unfit(merge: Merge, batch: Batch, model: str) -> None:
    """Find the requests whose values do not fit and let the others run."""
    fit: list[InferRequest] = []
    failed: list[tuple[InferRequest, ServeError]] = []
    for request in batch.requests:
        try:
            merge.gather([request], request.batch_size)
            fit.append(request)
        except ServeError as error:
            failed.append((request, error))
        except Exception as error:
            logger.exception("model '%s': the inputs of a request could not be joined", model)
            failed.append((request, failure(model, error)))
    batch.requests = fit
    batch.failed = failed
    batch.rows = sum(request.batch_size for request in fit)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:500]
