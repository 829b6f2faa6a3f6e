"""Where an instance runs: inline on the event loop, or on a thread of its own.

Which one is measured, not configured: an execution expected to take less than
``INLINE_LIMIT_NS`` costs less than handing it to a thread and back, so it runs inline; everything
else runs on the instance's thread (native code releases the GIL). A model can pin its lane with
``parameters { key: "LANE" value { string_value: "inline" } }`` or ``"thread"``.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from time import monotonic_ns

from bident.backends.base import Instance
from bident.engine.batch import Batch, failure, gather
from bident.engine.ragged import RaggedMerge, merge_of
from bident.errors import ConfigError, ServeError
from bident.model.config import ModelConfig
from bident.model.parameters import LANE
from bident.wire.infer import InferRequest

logger = logging.getLogger("bident.engine")

INLINE = "inline"
INLINE_LIMIT_NS = 200_000
_UNKNOWN_NS = 10 * INLINE_LIMIT_NS
_RISE = 0.1
_OUTLIER = 4
_WORTH_WAITING = 0.9
"""A larger batch is worth a wait if it takes less than this share of the time for each row."""


def lane_of(config: ModelConfig, lanes: Sequence[str]) -> str:
    """The lane that ``config`` pins, "" if none. Raises ConfigError on a word that is not one of ``lanes``."""
    word = config.parameters.get(LANE, "").lower()
    if word and word not in lanes:
        raise ConfigError(
            f"model '{config.name}': parameter {LANE} is '{word}'; use {' or '.join(map(repr, lanes))}, or leave it out"
        )
    return word


class Lane:
    """One instance and its place of execution. At most one batch is in it at a time."""

    def __init__(self, config: ModelConfig, instance: Instance, loop: asyncio.AbstractEventLoop, label: str) -> None:
        """``label`` names the instance in logs and thread lists."""
        self._name = config.name
        self._merge = merge_of(config)
        self._instance = instance
        self._loop = loop
        self._label = label
        self._pinned = config.parameters.get(LANE, "").lower()
        self._fixed_shapes = all(-1 not in spec.dims for spec in config.inputs.values())
        self._expected_ns: dict[int, float] = {}
        self._work: queue.SimpleQueue[tuple[Batch, Callable[[Batch], None]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def is_quick(self, requests: Iterable[InferRequest], rows: int) -> bool:
        """Whether a batch of ``requests`` should run inline: pinned there, or measured to be short enough."""
        if self._pinned:
            return self._pinned == INLINE
        size = rows.bit_length() if self._fixed_shapes else self._size_class(requests)
        return self._expected_ns.get(size, _UNKNOWN_NS) < INLINE_LIMIT_NS

    def gains_by_growing(self, rows: int) -> bool:
        """Whether larger batches than one of ``rows`` are cheaper for each row; True until that has been measured."""
        if not self._fixed_shapes:
            return True
        size = rows.bit_length()
        here = self._expected_ns.get(size)
        larger = [ns / (1 << bits - 1) for bits, ns in self._expected_ns.items() if bits > size]
        if here is None or not larger:
            return True
        return min(larger) < here / (1 << size - 1) * _WORTH_WAITING

    def run_on_thread(self, batch: Batch, done: Callable[[Batch], None]) -> None:
        """Execute ``batch`` on the instance's thread; ``done`` is called on the event loop afterwards."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve_thread, name=f"bident {self._label}", daemon=True)
            self._thread.start()
        self._work.put((batch, done))

    def close(self) -> None:
        """End the thread and give back the instance's resources. No batch may be in the lane. May block."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
        try:
            self._instance.close()
        except Exception:
            logger.exception("closing instance %s failed", self._label)

    def _serve_thread(self) -> None:
        while True:
            item = self._work.get()
            if item is None:
                return
            batch, done = item
            self.execute(batch)
            self.learn(batch)
            try:
                self._loop.call_soon_threadsafe(done, batch)
            except RuntimeError:
                return  # the loop is closed: nobody is left to answer
            del item, batch, done  # or the last batch's tensors would stay until the next one comes

    def execute(self, batch: Batch) -> None:
        """Gather, run, scatter, here and now. Whatever goes wrong ends up in ``batch``: a lane never raises."""
        try:
            batch.start_ns = monotonic_ns()
            inputs = gather(self._merge, batch, self._name)
            if inputs is None:
                batch.infer_start_ns = batch.infer_end_ns = batch.start_ns
                return
            batch.infer_start_ns = monotonic_ns()
            outputs = self._instance.execute(inputs)
            batch.infer_end_ns = monotonic_ns()
            if isinstance(self._merge, RaggedMerge):
                batch.apart = self._merge.scatter_apart(outputs, batch.requests, batch.rows)
            if batch.apart is None:
                batch.columns = self._merge.scatter(outputs, batch.rows)
        except ServeError as error:
            batch.error = error
        except BaseException as error:  # a panic of native code or sys.exit() must not cost the lane its thread
            logger.exception("model '%s' failed in instance %s", self._name, self._label)
            batch.error = failure(self._name, error)

    def _size_class(self, requests: Iterable[InferRequest]) -> int:
        """Batches of a like size share one expectation; a class is a power of two of elements (or of rows)."""
        elements = sum(tensor.count for request in requests for tensor in request.inputs.values())
        return elements.bit_length()

    def learn(self, batch: Batch) -> None:
        """Note how long ``batch`` took.

        An expectation falls at once and rises slowly: now and then a time includes a wait for the
        GIL or for a processor.
        """
        if batch.error is not None or not batch.requests:
            return
        took: float = batch.infer_end_ns - batch.start_ns
        size = batch.rows.bit_length() if self._fixed_shapes else self._size_class(batch.requests)
        expected = self._expected_ns.get(size, took)
        if took > expected:
            took = expected + (min(took, _OUTLIER * expected) - expected) * _RISE
        self._expected_ns[size] = took
