"""Children that die or stop answering: an error for those they served, a new child for the others."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from runner_asking import LONG, children, end_children, generate, read_on, the_only, until
from sample_models import text_model

from bident.errors import Code, ServeError
from bident.text.runner.limits import Limits
from bident.text.runner.residency import Residency

SMALL = {"num_ctx": 256}
RUNNING = "an error was encountered while running the model: "


@pytest.fixture(autouse=True)
def _nothing_is_left():
    yield
    assert end_children() == set()


async def _one(residency, model, tokens=1):
    async with residency.lease(model, SMALL) as lease:
        return await generate(lease, tokens)


def test_a_killed_child_fails_its_streams_and_comes_back_by_itself(smollm2_weights):
    async def run():
        residency = Residency(Limits(backoff_seconds=0.05))
        model = text_model(smollm2_weights)
        async with residency.lease(model, SMALL) as lease:
            stream = lease.stream("/completion", {"prompt": "Once", "n_predict": LONG, "ignore_eos": True})
            await stream.__anext__()
            first = the_only(residency).pid
            os.kill(first, signal.SIGKILL)
            with pytest.raises(ServeError, match=rf"{RUNNING}.*SIGKILL") as killed:
                await read_on(stream)
            assert killed.value.code is Code.INTERNAL
        await until(lambda: residency.running() and the_only(residency).pid != first)
        assert await _one(residency, model)
        await residency.close()

    asyncio.run(run())


def test_who_waits_while_a_child_dies_is_answered_by_the_next(smollm2_weights):
    async def run():
        residency = Residency(Limits(slots=1, backoff_seconds=0.05))
        model = text_model(smollm2_weights)
        async with residency.lease(model, SMALL):
            waiting = asyncio.create_task(_one(residency, model))
            await asyncio.sleep(0)
            os.kill(the_only(residency).pid, signal.SIGKILL)
            assert await waiting
        await residency.close()

    asyncio.run(run())


def test_three_crashes_are_enough(smollm2_weights):
    async def run():
        residency = Residency(Limits(backoff_seconds=0.01))
        model = text_model(smollm2_weights)
        for _ in range(3):
            async with residency.lease(model, SMALL) as lease:
                os.kill(the_only(residency).pid, signal.SIGSEGV)
                with pytest.raises(ServeError, match=r"SIGSEGV"):
                    await generate(lease, LONG)
        with pytest.raises(ServeError, match=r"has failed: it crashed 3 times within 300 seconds.*SIGSEGV"):
            await _one(residency, model)
        assert residency.running() == []
        await residency.unload(model)  # somebody has looked into it
        assert await _one(residency, model)
        await residency.close()

    asyncio.run(run())


def test_a_child_that_does_not_respond_is_ended(smollm2_weights):
    async def run():
        residency = Residency(Limits(pulse_seconds=0.1, hang_seconds=0.5))
        model = text_model(smollm2_weights)
        async with residency.lease(model, SMALL) as lease:
            stream = lease.stream("/completion", {"prompt": "Once", "n_predict": LONG, "ignore_eos": True})
            await stream.__anext__()
            os.kill(the_only(residency).pid, signal.SIGSTOP)
            with pytest.raises(ServeError, match=rf"{RUNNING}its process did not respond for 0.5 seconds"):
                await read_on(stream)
        assert await _one(residency, model)
        await residency.close()

    asyncio.run(run())


def test_a_stopped_child_can_be_unloaded(smollm2_weights):
    async def run():
        residency = Residency()
        model = text_model(smollm2_weights)
        assert await _one(residency, model)
        os.kill(the_only(residency).pid, signal.SIGSTOP)
        await residency.unload(model)
        assert children() == set()
        await residency.close()

    asyncio.run(run())
