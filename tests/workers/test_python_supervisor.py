"""An instance outlives its workers."""

# ruff: noqa: E501 - models are written in one line

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import replace
from inspect import signature

import numpy as np
import pytest
from worker_driving import MODELS, assert_gone, is_alive, spec_of

from bident.backends.python.messages import Answers, Batch, BatchDone, Died, Reply, Request
from bident.backends.python.metrics import CustomMetrics
from bident.backends.python.supervisor import Patience, State, Supervisor
from bident.errors import Code, ServeError

QUICK = Patience(start_seconds=10, finalize_seconds=5, backoff_seconds=0.01, restart_limit=3, ready_seconds=0.3)


class Instance:
    """A supervised instance, and what has come of it."""

    def __init__(self, spec, patience=QUICK):
        self.events = []
        self.states = []
        self.metrics = CustomMetrics()
        self.supervisor = Supervisor(spec, self.events.extend, self.states.append, self.metrics, patience)
        self._last = 0

    async def until(self, holds, seconds=15.0):
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, (self.states, self.events)
            await asyncio.sleep(0.002)

    async def run(self, request):
        self._last += 1
        batch = self._last
        self.supervisor.send(Batch(batch, [request]))

        def replies():
            found = [r for e in self.events if isinstance(e, Answers) and e.batch == batch for r in e.replies()]
            return found + [e for e in self.events if isinstance(e, Reply) and e.batch == batch]

        await self.until(replies)
        return replies()[0]

    async def script(self, code):
        return await self.run(Request(inputs={"CODE": np.array([code.encode()], object)}))

    @property
    def pid(self):
        return self.supervisor.worker.pid


def in_loop(test):
    """Runs a test's coroutine, and closes the instances that it made with ``make``."""

    def run(tmp_path, caplog):
        async def all_of_it():
            made = []

            def make(spec, patience=QUICK):
                made.append(Instance(spec, patience))
                return made[-1]

            try:
                await (test(make, tmp_path, caplog) if "caplog" in signature(test).parameters else test(make, tmp_path))
            finally:
                for instance in made:
                    await instance.supervisor.close()

        asyncio.run(asyncio.wait_for(all_of_it(), 60))

    run.__name__ = test.__name__
    return run


def written(tmp_path, source):
    folder = tmp_path / "written"
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text(source, encoding="utf-8")
    return folder


@in_loop
async def test_it_serves_and_closes(make, tmp_path):
    instance = make(spec_of(MODELS / "script"))
    await instance.supervisor.start()
    assert instance.states == [State.READY]
    assert (await instance.script("answer = 1")).outputs["ANSWER"].tolist() == [b"1"]
    assert await instance.supervisor.is_ready()
    pid = instance.pid
    await instance.supervisor.close()
    assert_gone(pid)
    with pytest.raises(ServeError, match="closed"):
        instance.supervisor.send(Batch(9, [Request(inputs={})]))


@in_loop
async def test_a_killed_worker_is_replaced(make, tmp_path):
    instance = make(spec_of(MODELS / "script"))
    await instance.supervisor.start()
    for number in range(1, 3):
        first = instance.pid
        reply = await instance.script("os.kill(os.getpid(), 9)")
        assert "Stub process 'script_0_0' is not healthy" in reply.error.message
        assert instance.supervisor.state in (State.WAITING, State.STARTING)
        assert not await instance.supervisor.is_ready()
        with pytest.raises(ServeError) as caught:
            instance.supervisor.send(Batch(99, [Request(inputs={})]))
        assert caught.value.code is Code.UNAVAILABLE
        assert "is being restarted. Stub process 'script_0_0' is not healthy" in caught.value.message
        await instance.until(lambda: instance.supervisor.state is State.READY)
        assert instance.pid != first
        assert (await instance.script("answer = 2")).outputs["ANSWER"].tolist() == [b"2"]
        assert instance.supervisor.restarts == number
    assert sum(isinstance(event, Died) for event in instance.events) == 2


@in_loop
async def test_an_idle_worker_that_dies_is_replaced_too(make, tmp_path):
    instance = make(spec_of(MODELS / "identity"))
    await instance.supervisor.start()
    os.kill(instance.pid, signal.SIGKILL)
    await instance.until(lambda: instance.supervisor.restarts == 1 and instance.supervisor.state is State.READY)
    assert (await instance.run(Request(inputs={"IN0": np.ones(3)}))).outputs["OUT0"].tolist() == [1, 1, 1]


@in_loop
async def test_a_model_that_cannot_come_back_is_given_up(make, tmp_path):
    source = (
        "import os\nclass TritonPythonModel:\n"
        "    def initialize(self, args):\n"
        "        first = os.path.join(os.path.dirname(__file__), 'first')\n"
        "        if os.path.exists(first): raise ValueError('no more')\n"
        "        open(first, 'w').close()\n"
        "    def execute(self, requests): os._exit(5)\n"
    )
    instance = make(spec_of(written(tmp_path, source)))
    await instance.supervisor.start()
    await instance.run(Request(inputs={"IN": np.zeros(1)}))
    await instance.until(lambda: instance.supervisor.state is State.FAILED)
    assert instance.supervisor.restarts == QUICK.restart_limit
    assert "ValueError: no more" in instance.supervisor.reason
    with pytest.raises(ServeError, match="has failed"):
        instance.supervisor.send(Batch(9, [Request(inputs={})]))


@in_loop
async def test_restarts_wait_longer_each_time(make, tmp_path):
    source = "import os\nclass TritonPythonModel:\n    def execute(self, requests): os._exit(5)\n"
    patience = replace(QUICK, backoff_seconds=0.2, restart_limit=3)
    instance = make(spec_of(written(tmp_path, source)), patience)
    await instance.supervisor.start()
    waits = []
    for _ in range(3):
        await instance.run(Request(inputs={"IN": np.zeros(1)}))
        began = time.monotonic()
        await instance.until(lambda: instance.supervisor.state is not State.WAITING)
        waits.append(time.monotonic() - began)
        await instance.until(lambda: instance.supervisor.state is State.READY)
    assert waits[0] < 0.15 < waits[1] < waits[2]
    await instance.run(Request(inputs={"IN": np.zeros(1)}))
    await instance.until(lambda: instance.supervisor.state is State.FAILED)


@in_loop
async def test_a_batch_proves_a_worker(make, tmp_path):
    instance = make(spec_of(MODELS / "script"), replace(QUICK, restart_limit=1))
    await instance.supervisor.start()
    for number in range(1, 4):
        assert (await instance.script("answer = 1")).error is None
        await instance.script("os._exit(1)")
        await instance.until(lambda: instance.supervisor.state is State.READY)
        assert instance.supervisor.restarts == number


@in_loop
async def test_time_proves_a_worker(make, tmp_path):
    instance = make(spec_of(MODELS / "script"), replace(QUICK, proven_seconds=0.0))
    await instance.supervisor.start()
    for _ in range(QUICK.restart_limit + 2):
        await instance.script("os._exit(1)")
        await instance.until(lambda: instance.supervisor.state is State.READY)


@in_loop
async def test_a_model_that_fails_at_first_does_not_start(make, tmp_path):
    instance = make(spec_of(MODELS / "fails_to_start"))
    with pytest.raises(ServeError, match="ValueError: no weights"):
        await instance.supervisor.start()
    assert instance.states == [State.FAILED]


SLOW_START = """
import os, time


class TritonPythonModel:
    def initialize(self, args):
        open(os.path.join(os.path.dirname(__file__), "begun"), "w").close()
        time.sleep(1000)

    def execute(self, requests):
        pass
"""


@in_loop
async def test_closing_ends_a_start_under_way(make, tmp_path):
    instance = make(spec_of(written(tmp_path, SLOW_START)))
    start = asyncio.create_task(instance.supervisor.start())
    await instance.until((tmp_path / "written" / "1" / "begun").exists)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(start, 10)


@in_loop
async def test_the_loop_stays_free_while_a_model_initialises(make, tmp_path):
    slow = make(spec_of(written(tmp_path, SLOW_START)), replace(QUICK, start_seconds=1.0))
    start = asyncio.create_task(slow.supervisor.start())
    longest, last = 0.0, time.monotonic()
    while not start.done():
        await asyncio.sleep(0.001)
        now = time.monotonic()
        longest, last = max(longest, now - last), now
    assert longest < 0.25
    with pytest.raises(ServeError, match="'initialize' did not return within 1 seconds"):
        await start


@in_loop
async def test_closing_answers_what_is_under_way(make, tmp_path):
    instance = make(spec_of(MODELS / "slow"), replace(QUICK, finalize_seconds=0.2))
    await instance.supervisor.start()
    pid = instance.pid
    instance.supervisor.send(Batch(1, [Request(inputs={"IN0": np.array([b"/nowhere"], object)})]))
    await instance.supervisor.close()
    assert [event.error.code for event in instance.events if isinstance(event, Reply)] == [Code.UNAVAILABLE]
    assert_gone(pid)


@in_loop
async def test_is_ready_asks_the_model(make, tmp_path):
    source = "import os, time\nclass TritonPythonModel:\n    def is_ready(self): {}\n    def execute(self, requests): return []\n"
    for body, ready in (("return False", False), ("time.sleep(1)", False), ("return True", True)):
        folder = tmp_path / str(abs(hash(body)))
        folder.mkdir()
        instance = make(spec_of(written(folder, source.format(body))))
        await instance.supervisor.start()
        assert await instance.supervisor.is_ready() is ready


@in_loop
async def test_a_worker_at_work_is_ready(make, tmp_path):
    instance = make(spec_of(MODELS / "slow"))
    await instance.supervisor.start()
    go = tmp_path / "go"
    instance.supervisor.send(Batch(1, [Request(inputs={"IN0": np.array([str(go).encode()], object)})]))
    assert await instance.supervisor.is_ready()
    instance.supervisor.cancel(1, [0])
    await instance.until(lambda: any(isinstance(event, BatchDone) for event in instance.events))


@in_loop
async def test_metrics_are_kept_until_the_worker_dies(make, tmp_path):
    instance = make(spec_of(MODELS / "script"))
    await instance.supervisor.start()
    code = "f = pb_utils.MetricFamily('m', 'd', pb_utils.MetricFamily.COUNTER); m = f.Metric(labels={'a': 'b'}); m.increment(3); self.kept = [f, m]; answer = m.value()"
    assert (await instance.script(code)).outputs["ANSWER"].tolist() == [b"3.0"]
    assert 'm{a="b"} 3' in list(instance.metrics.lines())
    await instance.script("os._exit(1)")
    assert list(instance.metrics.lines()) == []


@in_loop
async def test_a_full_channel_is_emptied_by_the_loop(make, tmp_path):
    instance = make(spec_of(MODELS / "slow"))
    await instance.supervisor.start()
    go = tmp_path / "go"
    inputs = {"IN0": np.array([str(go).encode()], object), "BALLAST": np.zeros(12_000, np.uint8)}
    for number in range(100):
        instance.supervisor.send(Batch(number, [Request(inputs=inputs)]))
    assert instance.supervisor.worker.wants_write
    go.touch()
    await instance.until(lambda: sum(isinstance(event, BatchDone) for event in instance.events) == 100)
    assert not instance.supervisor.worker.wants_write


def test_workers_outlive_the_thread_that_asked_for_them(start_worker):
    import threading

    drivers = []
    thread = threading.Thread(target=lambda: drivers.append(start_worker("identity")))
    thread.start()
    thread.join()
    # The kernel would have ended it with its thread by now.
    assert drivers[0].run(Request(inputs={"IN0": np.ones(1)}))[0].error is None
    assert is_alive(drivers[0].worker.pid)


@in_loop
async def test_what_a_worker_makes_fail_ends_it_and_loses_nothing_else(make, tmp_path):
    instance = make(spec_of(MODELS / "script"))
    other = make(spec_of(MODELS / "identity"))
    await instance.supervisor.start()
    await other.supervisor.start()
    first, unhurt = instance.pid, other.pid
    # Something that only its use shows to be wrong.
    instance.supervisor._metrics.answer = lambda call: {}["nothing"]
    code = (
        "from bident_worker.frames import *; request._batch.link.send(36, {'call': 1, 'what': 'metric_value', 'id': 1})"
    )
    reply = await instance.script(code + "; time.sleep(30)")
    assert reply.error.message.startswith("Stub process 'script_0_0' is not healthy. It sent a message that makes no")
    assert_gone(first)
    await instance.until(lambda: instance.supervisor.restarts == 1 and instance.supervisor.state is State.READY)
    assert (await instance.script("answer = 2")).outputs["ANSWER"].tolist() == [b"2"]
    assert (await other.run(Request(inputs={"IN0": np.ones(3)}))).outputs["OUT0"].tolist() == [1, 1, 1]
    assert other.pid == unhurt


@in_loop
async def test_what_cannot_be_delivered_ends_the_worker(make, tmp_path, caplog):
    instance = make(spec_of(MODELS / "script"))
    await instance.supervisor.start()
    first, deliver = instance.pid, instance.supervisor._deliver

    def fail(events):
        deliver(events)
        instance.supervisor._deliver = deliver
        raise KeyError("of all things")

    instance.supervisor._deliver = fail
    await instance.script("answer = 1")
    await instance.until(lambda: instance.supervisor.restarts == 1 and instance.supervisor.state is State.READY)
    assert_gone(first)
    assert len([record for record in caplog.records if "of all things" in record.getMessage()]) == 1
    assert (await instance.script("answer = 2")).outputs["ANSWER"].tolist() == [b"2"]


@in_loop
async def test_nonsense_while_a_model_initialises_fails_the_start(make, tmp_path):
    source = (
        "import time\nfrom bident_worker import runtime\nclass TritonPythonModel:\n"
        "    def initialize(self, args):\n"
        "        runtime.current().link.send(36, {'call': 1, 'what': 'metric_value', 'id': 1})\n"
        "        time.sleep(30)\n"
    )
    instance = make(spec_of(written(tmp_path, source)))
    instance.supervisor._handle_aside = lambda worker, event: {}["nothing"]
    with pytest.raises(ServeError, match=r"makes no sense \(KeyError: 'nothing'\)"):
        await instance.supervisor.start()
