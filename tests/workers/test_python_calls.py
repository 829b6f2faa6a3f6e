"""A model asks the server: other models, model control, metrics."""

# ruff: noqa: E501 - error texts are quoted whole

from __future__ import annotations

import numpy as np
import pytest

from bident.backends.python.messages import InferCall, InferDropped, MetricCall, MetricChange, ModelCall, Request
from bident.backends.python.metrics import CustomMetrics
from bident.errors import Code, ServeError


def asks(*models):
    return Request(inputs={"MODE": np.array([model.encode() for model in models], object)})


class Other:
    """Plays the other model: answers a question with ten times its value, a decoupled one with it twice."""

    def __init__(self, driver, hold=0):
        self.driver = driver
        self.calls: list[InferCall] = []
        self.dropped: list[int] = []
        self._hold = hold
        driver.answer = self.answer

    def answer(self, event):
        if isinstance(event, InferDropped):
            self.dropped.append(event.call)
        if not isinstance(event, InferCall):
            return
        self.calls.append(event)
        if len(self.calls) < self._hold:
            return
        for call in self.calls if self._hold == len(self.calls) else [event]:
            outputs = {"OUT0": call.request.inputs["IN0"] * 10}
            if call.decoupled:
                self.driver.worker.answer_infer(call.call, outputs, final=False)
                self.driver.worker.answer_infer(call.call, outputs, final=False)
                self.driver.worker.answer_infer(call.call, None, final=True)
            else:
                self.driver.worker.answer_infer(call.call, outputs)


@pytest.mark.parametrize(
    ("mode", "total", "questions"), [("exec", 10, 1), ("decoupled", 40, 1), ("async_decoupled", 60, 1)]
)
def test_a_model_asks_another(start_worker, mode, total, questions):
    driver = start_worker("bls")
    other = Other(driver)
    reply = driver.run(asks(mode))[0]
    assert reply.error is None, reply.error
    assert reply.outputs["SUM"].tolist() == [total]
    assert len(other.calls) == questions
    call = other.calls[0]
    assert (call.model, call.version, call.decoupled) == ("other", -1, "decoupled" in mode)
    assert call.request.outputs == ["OUT0"]
    assert call.request.parameters == {"asked": True}


def test_fifty_asynchronous_questions_overlap(start_worker):
    driver = start_worker("bls")
    # Nothing is answered before all have been asked.
    Other(driver, hold=50)
    assert driver.run(asks("async"))[0].outputs["SUM"].tolist() == [10 * sum(range(50))]


QUESTION = (
    "Q = pb_utils.InferenceRequest(model_name='andere', inputs=[pb_utils.Tensor('IN0', np.arange({size}, dtype=np.float32))],"
    " requested_output_names=['OUT0'], request_id='ид', correlation_id='é', flags=1, timeout=5, model_version=3,"
    " trace=request.trace()); "
)


def test_everything_about_a_question_crosses(script):
    other = Other(script)
    for size in (3, 200_000):
        code = QUESTION.format(size=size) + "answer = Q.exec().output_tensors()[0].as_numpy().sum().item()"
        assert script.script(code, trace="ctx") == pytest.approx(10 * sum(range(size)))
    request = other.calls[0].request
    assert (request.id, request.correlation_id, request.flags, request.timeout_us) == ("ид", "é", 1, 5)
    assert (other.calls[0].model, other.calls[0].version, request.trace) == ("andere", 3, "ctx")


@pytest.mark.parametrize(
    "asked",
    [
        "timeout=2**70",
        "timeout=-1",
        "timeout=1.5",
        "flags=2**70",
        "flags=None",
        "model_version=2**70",
        "model_version='1'",
        "request_id=5",
        "requested_output_names=[5]",
    ],
)
def test_a_question_that_cannot_cross_is_the_models_error(script, asked):
    what = {"inputs": "[]", "requested_output_names": "['Y']", "model_name": "'m'"}
    name, _, value = asked.partition("=")
    made = ", ".join(f"{key}={text}" for key, text in {**what, name: value}.items())
    kind, text = script.script(f"answer = caught(lambda: pb_utils.InferenceRequest({made}))")
    assert kind == "TypeError"
    assert name in text
    assert script.script("answer = 1") == 1


def test_numbers_of_any_kind_and_up_to_the_limits_cross(script):
    other = Other(script)
    code = (
        "Q = pb_utils.InferenceRequest(model_name='m', inputs=[pb_utils.Tensor('IN0', np.ones(1))],"
        " requested_output_names=['OUT0'], timeout=2**64 - 1, flags=np.int64(2), model_version=np.int8(-1));"
        " answer = caught(lambda: Q.set_flags(2**32)); Q.exec()"
    )
    assert script.script(code) == ["TypeError", "flags must be an unsigned 32-bit integer, found 4294967296"]
    request = other.calls[0].request
    assert (request.timeout_us, request.flags, other.calls[0].version) == (2**64 - 1, 2, -1)


@pytest.mark.parametrize("rows", [1000, 100_000], ids=["in the channel", "in shared memory"])
def test_answers_that_are_not_read_do_not_pile_up(start_worker, rows):
    driver = start_worker("script", unread_limit=4_000_000)
    driver.send(
        Request(
            inputs={
                "CODE": np.array(
                    [
                        b"Q = pb_utils.InferenceRequest(model_name='m', inputs=[], requested_output_names=['Y'])\n"
                        b"kept = Q.exec(decoupled=True); time.sleep(1000)"
                    ],
                    object,
                )
            }
        )
    )
    driver.pump(lambda: any(isinstance(event, InferCall) for event in driver.events))
    call = next(event.call for event in driver.events if isinstance(event, InferCall))
    sent = 0

    def stream():
        nonlocal sent
        while sent < 40_000_000:
            driver.worker.answer_infer(call, {"Y": np.zeros(rows, np.float32)}, final=False)
            sent += 4 * rows

    with pytest.raises(ServeError, match="bytes of other models' answers wait for 'script_0_0'") as caught:
        stream()
    assert caught.value.code is Code.UNAVAILABLE
    assert 3_000_000 < sent < 8_000_000
    driver.worker.answer_infer(call, error=caught.value)


def test_answers_that_are_read_never_count(start_worker):
    driver = start_worker("script", unread_limit=4_000_000)

    def answer(event):
        if isinstance(event, InferCall):
            driver.worker.answer_infer(event.call, {"Y": np.zeros(250_000, np.float32)})

    driver.answer = answer
    code = (
        "Q = pb_utils.InferenceRequest(model_name='m', inputs=[], requested_output_names=['Y'])\n"
        "answer = sum(Q.exec().has_error() for _ in range(50))"
    )
    assert driver.script(code) == 0


def test_an_error_of_the_other_model_is_in_the_response(script):
    def answer(event):
        if isinstance(event, InferCall):
            script.worker.answer_infer(event.call, error=ServeError(Code.NOT_FOUND, "no model 'andere' €"))

    script.answer = answer
    code = (
        QUESTION.format(size=1) + "r = Q.exec(); answer = [r.has_error(), r.error().message(), r.error().code().name]"
    )
    assert script.script(code) == [True, "no model 'andere' €", "NOT_FOUND"]
    code = QUESTION.format(size=1) + "r = list(Q.exec(decoupled=True)); answer = [len(r), r[0].has_error()]"
    assert script.script(code) == [1, True]


def test_parameters_of_the_other_models_response(script):
    def answer(event):
        if isinstance(event, InferCall):
            script.worker.answer_infer(event.call, {}, parameters={"p": "ü"})

    script.answer = answer
    assert script.script(QUESTION.format(size=1) + "answer = Q.exec().parameters()") == '{"p": "ü"}'


def test_threads_may_ask_at_once(script):
    Other(script, hold=8)
    code = (
        QUESTION.format(size=1)
        + "from concurrent.futures import ThreadPoolExecutor as P\n"
        + "with P(8) as p: answer = len([f.result() for f in [p.submit(Q.exec) for _ in range(8)]])"
    )
    assert script.script(code) == 8


def test_a_dropped_iterator_drops_the_question(script):
    def answer(event):
        if isinstance(event, InferCall):
            script.worker.answer_infer(event.call, {"OUT0": np.zeros(300_000)}, final=False)

    script.answer = answer
    code = QUESTION.format(size=1) + "i = iter(Q.exec(decoupled=True)); next(i); del i; answer = 1"
    assert script.script(code) == 1
    script.pump(lambda: any(isinstance(event, InferDropped) for event in script.events))
    cancelled = QUESTION.format(size=1) + "i = Q.exec(decoupled=True); i.cancel(); next(i); answer = 1"
    assert script.script(cancelled) == 1
    script.pump(lambda: sum(isinstance(event, InferDropped) for event in script.events) >= 2)


def test_answers_that_nobody_reads_are_given_back(start_worker):
    driver = start_worker("script")

    def answer(event):
        if isinstance(event, InferCall):
            for _ in range(5):
                driver.worker.answer_infer(event.call, {"OUT0": np.zeros(300_000)}, final=False)
            driver.worker.answer_infer(event.call, None)

    driver.answer = answer
    for _ in range(20):
        driver.script(QUESTION.format(size=1) + "i = Q.exec(decoupled=True); next(i); del i")
    driver.script("import gc; gc.collect()")
    driver.script("pass")
    driver.pump(lambda: driver.worker._blocks.live == 0)


def test_raising_after_a_question_leaks_nothing(start_worker):
    driver = start_worker("script")
    other = Other(driver)
    sizes = []
    for number in range(300):
        driver.fail(QUESTION.format(size=50_000) + "r = Q.exec(); raise ValueError('after')")
        other.calls.clear()
        if number % 100 == 99:
            sizes.append(memory_of(driver.worker.pid))
            driver.events.clear()
    assert sizes[-1] < sizes[0] * 1.1


def memory_of(pid: int) -> int:
    from pathlib import Path

    return int(Path(f"/proc/{pid}/statm").read_text().split()[1])


def test_models_are_loaded_and_unloaded(script):
    calls: list[ModelCall] = []

    def answer(event):
        if isinstance(event, ModelCall):
            calls.append(event)
            script.worker.answer_call(event.call, **({"ready": True} if event.what == "is_ready" else {}))

    script.answer = answer
    script.script(
        "files = {'file:1/model.py': b'x', 'file:1/w.bin': b'y' * 100_000};"
        "pb_utils.load_model('ф', config='{\"a\": 1}', files=files)"
    )
    script.script("pb_utils.unload_model('ф', unload_dependents=True); pb_utils.load_model(model_name='m')")
    assert script.script("answer = pb_utils.is_model_ready('ф', '2')") is True
    assert [(call.what, call.model) for call in calls] == [
        ("load", "ф"),
        ("unload", "ф"),
        ("load", "m"),
        ("is_ready", "ф"),
    ]
    assert calls[0].config == '{"a": 1}'
    assert calls[0].files == {"file:1/model.py": b"x", "file:1/w.bin": b"y" * 100_000}
    assert calls[1].unload_dependents
    assert calls[3].version == "2"


def test_a_refused_load_raises(script):
    def answer(event):
        if isinstance(event, ModelCall):
            script.worker.answer_call(event.call, error="explicit model load / unload is not allowed")

    script.answer = answer
    for call, doing in (
        ("load_model", "load model"),
        ("unload_model", "unload model"),
        ("is_model_ready", "check model readiness"),
    ):
        assert script.script(f"answer = caught(lambda: pb_utils.{call}('m'))") == [
            "TritonModelException",
            f"Failed to {doing}: Failed to process the request for model 'script_0_0', "
            "message: explicit model load / unload is not allowed",
        ]


@pytest.fixture
def metrics(script):
    registry = CustomMetrics()
    held = registry.worker()

    def answer(event):
        if isinstance(event, MetricCall):
            script.worker.answer_call(event.call, **held.answer(event))
        elif isinstance(event, MetricChange):
            held.apply(event)

    script.answer = answer
    registry.held = held
    return registry


FAMILIES = """
F = pb_utils.MetricFamily
c = F(name='c1', description='Zähler\\n', kind=F.COUNTER); cm = c.Metric(labels={'a': 'b"\\\\'})
g = F('g1', 'd', pb_utils.MetricFamily.GAUGE); gm = g.Metric()
h = F('h1', 'd', F.HISTOGRAM); hm = h.Metric(labels={'q': '1'}, buckets=[1.0, 2.5])
"""


def test_metrics_are_counted(script, metrics):
    code = FAMILIES + "cm.increment(2); cm.increment(0.5); gm.set(5); gm.increment(-7); "
    code += (
        "[hm.observe(v) for v in (0.5, 1, 2, 99)]; self.kept = [c, cm, g, gm, h, hm]; answer = [cm.value(), gm.value()]"
    )
    assert script.script(code) == [2.5, -2.0]
    assert list(metrics.lines()) == [
        "# HELP c1 Zähler\\n",
        "# TYPE c1 counter",
        'c1{a="b\\"\\\\"} 2.5',
        "# HELP g1 d",
        "# TYPE g1 gauge",
        "g1 -2",
        "# HELP h1 d",
        "# TYPE h1 histogram",
        'h1_bucket{q="1",le="1"} 2',
        'h1_bucket{q="1",le="2.5"} 3',
        'h1_bucket{q="1",le="+Inf"} 4',
        'h1_sum{q="1"} 102.5',
        'h1_count{q="1"} 4',
    ]
    # The same name and labels are the same metric.
    same = (
        "F = pb_utils.MetricFamily; m = F('c1', 'other', F.COUNTER).Metric(labels={'a': 'b\"\\\\'}); answer = m.value()"
    )
    assert script.script(same) == 2.5
    script.script("self.kept.clear()")
    script.script("import gc; gc.collect()")
    script.pump(lambda: not list(metrics.lines()))


def test_a_dead_workers_metrics_go(script, metrics):
    script.script(FAMILIES + "self.kept = [c, cm, g, gm, h, hm]")
    assert list(metrics.lines())
    metrics.held.close()
    assert list(metrics.lines()) == []


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("cm.increment(-1)", "Failed to increment metric value: Failed to process the request for model 'script_0_0', message: TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative values."),
        ("cm.increment(float('nan'))", "non-negative"),
        ("cm.set(1)", "Failed to set metric value: Failed to process the request for model 'script_0_0', message: TRITONSERVER_METRIC_KIND_COUNTER does not support Set"),
        ("cm.observe(1)", "TRITONSERVER_METRIC_KIND_COUNTER does not support Observe"),
        ("hm.value()", "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Value"),
        ("hm.increment(1)", "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Increment"),
        ("c.Metric(labels=[1])", "Failed to create metric. Labels must be a dictionary."),
        ("c.Metric(labels={'a': 1})", "Error when creating Metric: Failed to process the request for model 'script_0_0', message: attempt to access JSON non-string as string"),
        ("c.Metric(labels={'a b': 'x'})", "'a b' is no name for a label"),
        ("c.Metric(buckets=[1.0])", "Failed to create metric. Unexpected buckets found."),
        ("h.Metric()", "Failed to create metric. Missing required buckets."),
        ("h.Metric(buckets=3)", "Failed to create metric. Buckets must be a list."),
        ("h.Metric(buckets=[2.0, 1.0])", "ascending order"),
        ("h.Metric(labels={'q': '1'}, buckets=[7.0])", "exists already, with other buckets"),
        ("F('c1', 'd', F.GAUGE)", "Error when creating MetricFamily: Failed to process the request for model 'script_0_0', message: metric family 'c1' exists already, as a counter"),
        ("F('c 1', 'd', F.GAUGE)", "'c 1' is no name for a metric"),
        ("F('nv_inference_count', 'd', F.COUNTER)", "names with nv_ are the server's"),
    ],
)  # fmt: skip
def test_metrics_that_cannot_be(script, metrics, call, text):
    found = script.script(FAMILIES + f"answer = caught(lambda: {call})")
    assert found[0] == "TritonModelException"
    assert text in found[1]


def test_infinities_are_numbers(script, metrics):
    assert script.script(FAMILIES + "gm.set(float('inf')); answer = str(gm.value())") == "inf"


def test_half_of_a_surrogate_pair_costs_nobody_the_page(script, metrics):
    code = "f = pb_utils.MetricFamily('m', 'a\\ud800', pb_utils.MetricFamily.GAUGE); m = f.Metric({'x': '\\udfff'});"
    script.script(code + " self.kept = [f, m]")
    assert list(metrics.lines()) == ["# HELP m a?", "# TYPE m gauge", 'm{x="?"} 0']
