"""A model inside the server asks it: other models, model control, metrics. None of it may hold up the event loop."""

# ruff: noqa: E501 - models are written in one line

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from inside_site import asked, code, in_loop, until, write

from bident.backends.python.metrics import CustomMetrics
from bident.backends.python.worker.bident_worker import api
from bident.errors import Code, ServeError

QUESTION = (
    "Q = pb_utils.InferenceRequest(model_name='{model}', inputs=[pb_utils.Tensor('IN0', np.arange({size}, dtype=np.float32))],"
    " requested_output_names=['OUT0'], request_id='ид', correlation_id='é', flags=1, timeout=5, model_version=3); "
)
Q = QUESTION.format(model="other", size=3)


@pytest.mark.parametrize(("mode", "total"), [("exec", 10), ("decoupled", 40), ("async_decoupled", 60)])
@in_loop
async def test_a_model_asks_another(start, mode, total):
    site = await start("bls")
    site.peers.decoupled = "decoupled" in mode

    def answer(request):
        outputs = {"OUT0": request.inputs["IN0"].data * 10}
        if site.peers.decoupled:
            return [(outputs, None, False), (outputs, None, False), (None, None, True)]
        return [(outputs, None, True)]

    site.peers.answer = answer
    told = await site.run(asked({"MODE": np.array([mode.encode()], object)}))
    assert told.output("SUM").tolist() == [total]
    assert site.peers.asked[0].parameters == {"asked": True}
    assert site.peers.asked[0].outputs == ["OUT0"]


@in_loop
async def test_everything_about_a_question_is_told(start):
    site = await start("script")
    assert await site.script(Q + "answer = Q.exec().output_tensors()[0].as_numpy().tolist()") == [0, 10, 20]
    (request,) = site.peers.asked
    assert (request.model_name, request.model_version, request.id) == ("other", "3", "ид")
    assert (request.sequence_id, request.sequence_start, request.timeout_us) == ("é", True, 5)


@in_loop
async def test_arrays_on_the_way_are_nobody_elses(start):
    site = await start("script")
    held = []

    def answer(request):
        held.append(request.inputs["IN0"].data)
        held.append(np.zeros(2, np.float32))
        return [({"OUT0": held[1]}, None, True)]

    site.peers.answer = answer
    await site.script(Q + "out = Q.exec().output_tensors()[0].as_numpy(); out += 1; Q.inputs()[0].as_numpy()[:] = 9")
    assert [array.tolist() for array in held] == [[0, 1, 2], [0, 0]]


@in_loop
async def test_errors_of_the_other_model(start):
    site = await start("script")
    site.peers.answer = lambda request: [(None, ServeError(Code.NOT_FOUND, "gone €"), True)]
    told = "r = Q.exec(); answer = [r.has_error(), r.error().message(), r.error().code().name]"
    assert await site.script(Q + told) == [True, "gone €", "NOT_FOUND"]
    absent = QUESTION.format(model="absent", size=1)
    assert "Model 'absent' is not ready" in (await site.script(absent + told))[1]


@in_loop
async def test_a_model_asks_from_threads_of_its_own(start):
    site = await start("script")
    other = await start("script", config={"name": "second"})
    text = "import concurrent.futures as f\n" + Q + "\nwith f.ThreadPoolExecutor(4) as pool:\n"
    text += "    answer = [a.result().output_tensors()[0].as_numpy()[1].item() for a in [pool.submit(Q.exec) for _ in range(8)]]"
    assert await site.script(text) == [10] * 8
    assert len(site.peers.asked) == 8
    assert not other.peers.asked


@in_loop
async def test_a_question_ends_when_the_model_is_closed(start):
    site = await start("script")
    site.peers.answer = lambda request: []
    waiting = site.send(
        asked(
            {"CODE": code(Q + "self.kept.append(Q.exec().error().message()); pb_utils.Logger.log_warn(self.kept[0])")}
        )
    )
    await until(lambda: site.peers.asked)
    await asyncio.wait_for(site.instance.close(), 5)
    assert waiting.error().code is Code.UNAVAILABLE


@in_loop
async def test_answers_that_are_wanted_no_longer(start):
    site = await start("script")
    site.peers.decoupled = True
    site.peers.answer = lambda request: [({"OUT0": np.ones(1)}, None, False)]
    await site.script(Q + "responses = Q.exec(decoupled=True); next(responses); del responses")
    await until(lambda: site.peers.cancelled)
    assert site.peers.cancelled == site.peers.asked


@in_loop
async def test_loading_and_unloading_from_a_model(start):
    site = await start("script")
    text = "pb_utils.load_model('m', 'cfg', {'file:1/x': b'abc'}); pb_utils.unload_model('m', True);"
    text += " answer = [pb_utils.is_model_ready('m'), pb_utils.is_model_ready('absent'), caught(lambda: pb_utils.load_model('broken'))]"
    ready, absent, broken = await site.script(text)
    assert (ready, absent) == (True, False)
    assert broken[0] == "TritonModelException"
    assert "it is broken" in broken[1]
    assert site.peers.changes == [("m", "cfg", {"file:1/x": b"abc"}), ("m", True)]


@in_loop
async def test_what_may_not_be_asked_while_starting(start, tmp_path):
    source = "import triton_python_backend_utils as pb\nclass TritonPythonModel:\n    def initialize(self, args): pb.is_model_ready('m')\n    def execute(self, requests): return []\n"
    with pytest.raises(ServeError, match="Server not ready"):
        await start(write(tmp_path, source))


@in_loop
async def test_metrics_are_the_servers_and_go_with_the_model(start):
    metrics = CustomMetrics()
    site = await start("script", metrics=metrics)
    text = "F = pb_utils.MetricFamily('asked_total', 'How often', pb_utils.MetricFamily.COUNTER); M = F.Metric({'who': 'ä'});"
    text += "M.increment(2); M.increment(0.5); self.kept += [F, M]; answer = M.value()"
    assert await site.script(text) == 2.5
    assert 'asked_total{who="ä"} 2.5' in list(metrics.lines())
    await site.script("self.kept.clear()")
    await until(lambda: not list(metrics.lines()))
    await site.script(text)
    await site.instance.close()
    assert not list(metrics.lines())


@in_loop
async def test_half_of_a_surrogate_pair_costs_nobody_the_metrics_page(start):
    site = await start("script")
    text = "F = pb_utils.MetricFamily('m', 'a\\ud800', pb_utils.MetricFamily.GAUGE); M = F.Metric({'x': '\\udfff'});"
    await site.script(text + "self.kept += [F, M]")
    assert list(site.metrics.lines()) == ["# HELP m a?", "# TYPE m gauge", 'm{x="?"} 0']


@in_loop
async def test_each_model_is_known_by_what_it_calls(start):
    sites = [await start("script", config={"name": name}, instance_name=name) for name in ("a", "b")]
    for site, name in zip(sites, ("a", "b"), strict=True):
        text = "import threading; found = []; t = threading.Thread(target=lambda: found.append(caught(lambda: pb_utils.is_model_ready('m'))));"
        text += f" t.start(); t.join(); answer = [found, '{name}']"
        assert await site.script(text) == [[None], name]
    said = [await site.script("answer = caught(lambda: pb_utils.load_model('broken'))[1]") for site in sites]
    assert ["model 'a'" in said[0], "model 'b'" in said[1]] == [True, True]


@in_loop
async def test_nobody_else_has_a_server(start):
    await start("identity")
    with pytest.raises(api.TritonModelException, match="there is no server"):
        api.is_model_ready("m")
