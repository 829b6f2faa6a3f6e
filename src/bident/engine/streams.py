"""What the responses of a decoupled model took, one by one: Triton's ``response_stats``."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns

from bident.engine.batch import Batch
from bident.engine.stats import ModelStats
from bident.wire.infer import InferRequest, InferResponse, Outcome

_MS = 1_000_000


class Streams:
    """The open streams of one model version. Lives on the event loop."""

    def __init__(self, stats: ModelStats) -> None:
        self._stats = stats
        self._open: dict[InferRequest, tuple[int, int]] = {}
        """How many responses a request has had, and when the last one had been written."""

    def reply(
        self,
        batch: Batch,
        request: InferRequest,
        response: InferResponse,
        reply: Callable[[InferRequest, InferResponse], Outcome],
    ) -> Outcome:
        """Have ``response`` written by ``reply``, and add what it took to the figures."""
        index, since_ns = self._open.get(request) or (0, batch.infer_start_ns)
        came_ns = monotonic_ns()
        if not index and self._stats.first_response is not None:
            self._stats.first_response.observe((came_ns - request.received_ns) / _MS)
        outcome = reply(request, response)
        written_ns = monotonic_ns()
        if response.final:
            self._open.pop(request, None)
        else:
            self._open[request] = (index + 1, written_ns)
        self._record(index, response, came_ns - since_ns, written_ns - came_ns)
        return outcome

    def _record(self, index: int, response: InferResponse, infer_ns: int, output_ns: int) -> None:
        figures = self._stats.response(index)
        if response.error is None and not response.columns:
            figures.empty_response.add(1, infer_ns)
            return
        figures.compute_infer.add(1, infer_ns)
        figures.compute_output.add(1, output_ns)
        outcome = figures.success if response.error is None else figures.fail
        outcome.add(1, infer_ns + output_ns)
