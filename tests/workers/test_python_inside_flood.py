"""A model inside the server that says more than the event loop can hear waits for it, and nobody else does."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest
from inside_site import asked, in_loop, until, write

from bident.backends.python.inside_unheard import MOST_AT_ONCE, MOST_WAITING, MOST_WAITING_BYTES

FLOOD = """
import threading
import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def flood(self, sender, size):
        while not sender.is_cancelled():
            sender.send(pb.InferenceResponse([pb.Tensor("OUT", np.zeros(size, np.uint8))]))
        sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def execute(self, requests):
        for request in requests:
            size = int(request.inputs()[0].as_numpy()[0])
            sender = request.get_response_sender()
            threading.Thread(target=self.flood, args=(sender, size), daemon=True).start()
"""

ASKING = """
import asyncio
import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    async def execute(self, requests):
        times = int(requests[0].inputs()[0].as_numpy()[0])
        one = pb.Tensor("IN0", np.ones(1, np.int32))
        ask = lambda: pb.InferenceRequest(model_name="m", inputs=[one], requested_output_names=["OUT0"]).async_exec()
        answers = await asyncio.gather(*[ask() for _ in range(times)])
        return [pb.InferenceResponse([pb.Tensor("OUT", sum(a.output_tensors()[0].as_numpy() for a in answers))])]
"""


def flood(size):
    return asked({"SIZE": np.array([size], np.int32)})


class Turns:
    """Counts what is heard between two turns of the loop."""

    def __init__(self, told):
        self.most = 0
        self._told = told
        self._last = 0
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._turn)

    @property
    def heard(self):
        return len(self._told.replies[0])

    def _turn(self):
        self.most = max(self.most, self.heard - self._last)
        self._last = self.heard
        self._loop.call_soon(self._turn)


@in_loop
async def test_the_loop_has_its_turn_while_a_model_sends_without_pause(start, tmp_path):
    site = await start(write(tmp_path, FLOOD), decoupled=True)
    told = site.send(flood(1))
    turns = Turns(told)
    await until(lambda: turns.heard > 20 * MOST_WAITING)
    assert turns.most <= 2 * MOST_AT_ONCE
    site.instance.cancel(told, [0])
    await told.over()


@pytest.mark.parametrize(("size", "most"), [(1, MOST_WAITING + 2), (1 << 20, MOST_WAITING_BYTES // (1 << 20) + 2)])
@in_loop
async def test_what_waits_to_be_heard_is_bounded(start, tmp_path, size, most):
    site = await start(write(tmp_path, FLOOD), decoupled=True)
    told = site.send(flood(size))
    said = site.instance._host._said
    deadline = time.monotonic() + 20
    while not said._waiting:  # the loop stands still: nobody hears
        assert time.monotonic() < deadline
        assert len(said) <= most
        time.sleep(0.001)
    assert most - 4 <= len(said) <= most
    site.instance.cancel(told, [0])
    await told.over()
    assert told.error() is None


@in_loop
async def test_a_model_that_is_unloaded_in_full_flood_ends(start, tmp_path):
    site = await start(write(tmp_path, FLOOD), decoupled=True)
    told = site.send(flood(1 << 16))
    await until(lambda: len(told.replies[0]) > 10)
    batch = next(iter(site.instance._host._link.batches.values()))
    await asyncio.wait_for(site.instance.close(), 10)
    assert "was unloaded before it answered" in told.error().message
    assert not site.instance._host._said
    batch.cancelled.add(0)
    await until(lambda: not batch.is_open(0))


@in_loop
async def test_a_model_that_asks_without_pause_waits_too(start, tmp_path):
    site = await start(write(tmp_path, ASKING))
    told = site.send(asked({"TIMES": np.array([2000], np.int32)}))
    said = site.instance._host._said
    deadline = time.monotonic() + 20
    while not said._waiting:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert len(said) <= MOST_WAITING + 2
    assert (await told.over()).output("OUT").tolist() == [2000 * 10]
