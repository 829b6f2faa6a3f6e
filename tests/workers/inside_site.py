"""A model inside the test's own process, on its thread, driven as the engine drives it."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
from pathlib import Path
from time import monotonic_ns

import numpy as np
from worker_driving import MODELS, spec_of

from bident.backends.python.inside import InsideInstance
from bident.backends.python.metrics import CustomMetrics
from bident.backends.python.supervisor import Patience
from bident.errors import Code, ServeError
from bident.wire.datatypes import from_numpy
from bident.wire.infer import Column, InferInput, InferRequest, InferResponse

QUICK = Patience(start_seconds=10, finalize_seconds=10, ready_seconds=5)
DEADLINE_SECONDS = 20


def asked(inputs, rows=1, **details):
    """A request; inputs given as lists count as JSON, arrays as binary."""
    tensors = {}
    for name, given in inputs.items():
        array = np.asarray(given)
        tensors[name] = InferInput(name, from_numpy(array.dtype), array.shape, array.size, given)
    request = InferRequest("model", "", details.pop("id", ""), tensors, monotonic_ns())
    request.batch_size = rows
    for key, value in details.items():
        setattr(request, key, value)
    return request


def code(text):
    return np.array([text.encode()], object)


class Told:
    """The Answers of one batch."""

    def __init__(self, count):
        self.together = None
        self.replies = [[] for _ in range(count)]
        self.ran = None
        self._open = count
        self._over = asyncio.Event()

    def answered(self, outputs, rows):
        self.together = (outputs, list(rows))
        start = 0
        for index, own in enumerate(rows):
            self.replied(index, {name: array[start : start + own] for name, array in outputs.items()})
            start += own

    def replied(self, index, outputs, *, error=None, parameters=None, final=True):
        self.replies[index].append((outputs, error, parameters))
        self._open -= final
        self._look()

    def executed(self, start_ns, end_ns):
        assert self.ran is None
        self.ran = (start_ns, end_ns)
        self._look()

    async def over(self):
        await asyncio.wait_for(self._over.wait(), DEADLINE_SECONDS)
        return self

    def error(self, index=0):
        return self.replies[index][-1][1]

    def output(self, name, index=0):
        outputs, error, _ = self.replies[index][0]
        assert error is None, error
        return outputs[name]

    def _look(self):
        assert self._open >= 0
        if not self._open and self.ran:
            self._over.set()


class Peers:
    """The Server that models ask: ``answer`` makes (outputs, error, final) of a request, one after the other."""

    def __init__(self):
        self.asked = []
        self.cancelled = []
        self.changes = []
        self.decoupled = False
        self.answer = lambda request: [({"OUT0": request.inputs["IN0"].data * 10}, None, True)]

    def infer(self, request):
        self.asked.append(request)
        for outputs, error, final in self.answer(request):
            columns = [Column(name, from_numpy(array.dtype), array) for name, array in (outputs or {}).items()]
            response = InferResponse(request.model_name, "1", "", columns, 0, -1)
            response.error, response.final = error, final
            request.reply(response)

    def cancel(self, request):
        self.cancelled.append(request)

    def is_model_ready(self, name, version):
        return name != "absent"

    def is_decoupled(self, name, version):
        return self.decoupled

    async def load(self, name, config, files):
        if name == "broken":
            raise ServeError(Code.INVALID_ARG, "it is broken")
        self.changes.append((name, config, files))

    async def unload(self, name, *, dependents):
        self.changes.append((name, dependents))


class Site:
    """One instance."""

    def __init__(self, model, patience=QUICK, metrics=None, inline=False, **changes):
        folder = MODELS / model if isinstance(model, str) else model
        self.metrics = metrics or CustomMetrics()
        self.peers = Peers()
        self.states = []
        self.instance = InsideInstance(spec_of(folder, **changes), self.metrics, patience, inline=inline)

    async def start(self):
        await self.instance.start(self.peers, lambda: self.states.append(self.instance.is_available))
        return self

    def send(self, *requests, inputs=None):
        """A batch; ``inputs`` are the joined ones of all requests, by default those of the only one."""
        told = Told(len(requests))
        if inputs is None:
            inputs = {name: np.asarray(tensor.data) for name, tensor in requests[0].inputs.items()}
        self.instance.execute_requests(requests, inputs, told)
        return told

    async def run(self, *requests, inputs=None):
        return await self.send(*requests, inputs=inputs).over()

    async def script(self, text, **details):
        """Run ``text`` in the ``script`` model; returns its ``answer``. Fails when it failed."""
        told = await self.run(asked({"CODE": code(text)}, **details))
        return json.loads(told.output("ANSWER")[0])

    async def refused(self, text):
        """The error of running ``text``."""
        return (await self.run(asked({"CODE": code(text)}))).error()


def in_loop(test):
    """Runs a test's coroutine; what it makes with ``start`` is closed afterwards."""

    def run(*arguments, **named):
        async def all_of_it():
            async with contextlib.AsyncExitStack() as stack:

                async def start(model, *more, **changes):
                    site = Site(model, *more, **changes)
                    stack.push_async_callback(site.instance.close)
                    return await site.start()

                await test(start, *arguments, **named)

        asyncio.run(asyncio.wait_for(all_of_it(), 60))

    signature = inspect.signature(test)
    run.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])
    run.__name__ = test.__name__
    return run


async def until(holds, seconds=DEADLINE_SECONDS):
    """Fails unless ``holds()`` in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not holds():
        assert loop.time() < deadline, "it did not come to pass in time"
        await asyncio.sleep(0.002)


def write(folder: Path, source: str, **files: str) -> Path:
    """A model's folder; ``files`` are more modules of its version."""
    (folder / "1").mkdir(parents=True, exist_ok=True)
    (folder / "1" / "model.py").write_text(source, encoding="utf-8")
    for name, text in files.items():
        (folder / "1" / f"{name}.py").write_text(text, encoding="utf-8")
    return folder
