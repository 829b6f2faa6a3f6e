"""Decoupled models, response senders, asynchronous models, cancellation."""

# ruff: noqa: E501 - error texts are quoted whole

from __future__ import annotations

import numpy as np
import pytest
from worker_driving import MODELS, Driver, spec_of

from bident.backends.python.messages import BatchDone, Readiness, Reply, Request
from bident.errors import Code


def numbers(*values):
    return Request(inputs={"IN0": np.array(values, np.float32)})


def test_each_request_gets_its_responses_in_order(start_worker):
    driver = start_worker("repeat", decoupled=True)
    replies = driver.run(numbers(1, 2, 3), numbers(), numbers(7))
    by_index = {index: [reply for reply in replies if reply.index == index] for index in range(3)}
    assert [reply.outputs["OUT0"].tolist() for reply in by_index[0] if reply.outputs] == [[1], [2], [3]]
    assert [reply.outputs["IDX"].tolist() for reply in by_index[0] if reply.outputs] == [[0], [1], [2]]
    assert [reply.final for reply in by_index[0]] == [False, False, False, True]
    assert [reply.final for reply in by_index[1]] == [True]
    assert by_index[1][0].outputs == {}
    assert by_index[1][0].error is None
    assert [reply.final for reply in by_index[2]] == [False, True]
    assert not driver.worker.busy


def test_a_thousand_responses_do_not_grow_anything(start_worker):
    driver = start_worker("repeat", decoupled=True)
    replies = driver.run(numbers(*range(1000)))
    assert [reply.outputs["OUT0"][0] for reply in replies[:-1]] == list(range(1000))
    assert replies[-1].final
    assert not replies[-1].outputs


def test_asynchronous_executes_overlap(start_worker):
    driver = start_worker("repeat_async", decoupled=True)
    first = driver.send(numbers(1, 2))
    driver.pump(lambda: any(isinstance(event, BatchDone) for event in driver.events))
    assert driver.replies(first) == []
    second = driver.send(numbers(3))
    driver.finish(first)
    driver.finish(second)
    assert [reply.outputs["OUT0"].tolist() for reply in driver.replies(first) if reply.outputs] == [[1], [2]]
    assert [reply.outputs["OUT0"].tolist() for reply in driver.replies(second) if reply.outputs] == [[3]]


@pytest.fixture(scope="module")
def decoupled():
    driver = Driver(spec_of(MODELS / "script", decoupled=True))
    yield driver
    driver.worker.close()


TENSOR = "R = pb_utils.InferenceResponse([pb_utils.Tensor('Y', np.ones(1, np.float32))]); "
SENDER = TENSOR + "s = request.get_response_sender(); "
FAILED = "Failed to process the request(s) for model 'script_0_0', message: "


def shapes(replies: list[Reply]) -> list[tuple[list[str], bool, bool]]:
    return [(list(reply.outputs), reply.error is not None, reply.final) for reply in replies]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("s.send(flags=1)", [([], False, True)]),
        ("s.send(R, 1)", [(["Y"], False, True)]),
        ("s.send(R); s.send(R, flags=1)", [(["Y"], False, False), (["Y"], False, True)]),
        ("s.send(R); s.send(flags=1)", [(["Y"], False, False), ([], False, True)]),
        ("s.send(pb_utils.InferenceResponse(error=pb_utils.TritonError('mine')), 1)", [([], True, True)]),
        ("s.send(R); raise ValueError('x')", [(["Y"], False, False), ([], True, True)]),
        ("s.send(R, 1); s.send(R)", [(["Y"], False, True)]),
    ],
)
def test_what_a_decoupled_model_sends(decoupled, code, expected):
    replies = decoupled.run(Request(inputs={"CODE": np.array([f"{SENDER}{code}; result = None".encode()], object)}))
    assert shapes(replies) == expected


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("result = [R]", "Python model 'script_0_0' is using the decoupled mode and the execute function must return None."),
        ("raise ValueError('x')", "ValueError: x\n\nAt:\n"),
        ("s = request.get_response_sender(); s.send(R, 9)", "TritonModelException: Unable to send response. Unsupported flag provided."),
        ("s = request.get_response_sender(); s.send()", "Inference Response object must be provided when the response flags is set to zero."),
        ("s = request.get_response_sender(); s.send(3)", "TypeError: send takes a pb_utils.InferenceResponse, found <class 'int'>"),
    ],
)  # fmt: skip
def test_what_a_decoupled_model_does_wrong_is_told(decoupled, code, message):
    reply = decoupled.fail(TENSOR + code)
    assert reply.final
    assert reply.error.message.startswith(FAILED + message) or message in reply.error.message


def test_a_closed_sender_takes_no_more(decoupled):
    decoupled.fail(SENDER + "s.send(R, 1); s.send(R); result = None")
    assert any("Unable to send response. Response sender has been closed." in line for line in decoupled.logged())


@pytest.mark.parametrize(
    "code", ["result = None", "s = request.get_response_sender(); result = None", SENDER + "s.send(R); result = None"]
)
def test_a_dropped_request_does_not_hang(decoupled, code):
    reply = decoupled.fail(code)
    assert reply.final
    assert "the model dropped a request" in reply.error.message


def test_a_kept_request_may_be_answered_later(decoupled):
    batch = decoupled.send(Request(inputs={"CODE": np.array([b"self.kept.append(request); result = None"], object)}))
    decoupled.pump(lambda: any(isinstance(e, BatchDone) and e.batch == batch for e in decoupled.events))
    assert decoupled.replies(batch) == []
    decoupled.run(
        Request(
            inputs={
                "CODE": np.array(
                    [
                        (
                            SENDER + "self.kept.pop().get_response_sender().send(R, 1); s.send(R, 1); result = None"
                        ).encode()
                    ],
                    object,
                )
            }
        )
    )
    assert shapes(decoupled.replies(batch)) == [(["Y"], False, True)]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("s.send(R, 1); result = [None]", [(["Y"], False, True)]),
        ("s.send(R); result = None", [(["Y"], False, True)]),
        ("s.send(R); s.send(flags=1); result = [None]", [(["Y"], False, True)]),
        ("s.send(R, 1); result = [R]", [(["Y"], False, True)]),
        ("import threading; threading.Timer(0.01, s.send, (R, 1)).start(); result = [None]", [(["Y"], False, True)]),
    ],
)
def test_an_ordinary_model_may_use_its_sender_once(script, code, expected):
    assert shapes(script.run(Request(inputs={"CODE": np.array([(SENDER + code).encode()], object)}))) == expected


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("s.send(R); s.send(R)", "Unable to send response. Non-decoupled model cannot send more than one response."),
        ("s.send(R, 1); s.send(R, 1)", "Unable to send response. Non-decoupled model cannot send more than one response."),
        ("s.send(flags=1)", "Unable to send response. Non-decoupled model cannot send complete final before sending a response."),
    ],
)  # fmt: skip
def test_an_ordinary_model_may_not_stream(script, code, message):
    reply = script.fail(SENDER + code)
    said = [*script.logged(), reply.error.message if reply.error else ""]
    assert [message in text for text in said].count(True) == 1
    cured = "add model_transaction_policy { decoupled: true } to its config.pbtxt"
    assert any(cured in line for line in said) is ("more than one" in message)


def test_a_request_can_be_rescheduled(script):
    replies = script.run(
        Request(
            inputs={
                "CODE": np.array(
                    [b"request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE); result = [None]"],
                    object,
                )
            }
        )
    )
    assert [(reply.rescheduled, reply.final, reply.error, reply.outputs) for reply in replies] == [
        (True, True, None, {})
    ]


def test_cancelling_reaches_a_model_at_work(start_worker, tmp_path):
    driver = start_worker("slow")
    never = np.array([str(tmp_path / "never").encode()], object)
    batch = driver.send(Request(inputs={"IN0": never}), Request(inputs={"IN0": never}))
    driver.worker.cancel(batch, [0])
    driver.worker.cancel(batch, [1])
    driver.finish(batch, 2)
    assert [reply.outputs["CANCELLED"].tolist() for reply in driver.replies(batch)] == [[True], [True]]
    # Others are not cancelled, nor is what has been answered already.
    driver.worker.cancel(batch, [0])
    there = tmp_path / "there"
    there.touch()
    replies = driver.run(Request(inputs={"IN0": np.array([str(there).encode()], object)}))
    assert replies[0].outputs["CANCELLED"].tolist() == [False]


def test_cancelling_reaches_a_stream(start_worker, write_model):
    folder = write_model(
        "import threading, time, numpy as np, triton_python_backend_utils as pb\n"
        "class TritonPythonModel:\n"
        "    def execute(self, requests):\n"
        "        for request in requests:\n"
        "            threading.Thread(target=self.stream, args=(request.get_response_sender(),), daemon=True).start()\n"
        "    def stream(self, sender):\n"
        "        while not sender.is_cancelled():\n"
        "            sender.send(pb.InferenceResponse([pb.Tensor('OUT', np.ones(1))]))\n"
        "            time.sleep(0.001)\n"
        "        sender.send(flags=1)\n"
    )
    driver = start_worker(folder, decoupled=True)
    batch = driver.send(Request(inputs={"IN": np.zeros(1)}))
    driver.pump(lambda: len(driver.replies(batch)) >= 3)
    driver.worker.cancel(batch, [0])
    driver.finish(batch)
    assert driver.replies(batch)[-1].final


READY = "import triton_python_backend_utils as pb\nimport asyncio\nclass TritonPythonModel:\n    def execute(self, requests): return []\n"


@pytest.mark.parametrize(
    ("body", "ready", "reason"),
    [
        ("", True, ""),
        ("    def is_ready(self): return True", True, ""),
        ("    def is_ready(self): return False", False, ""),
        ("    async def is_ready(self): return True", True, ""),
        ("    def is_ready(self): return 1", False, "is_ready must return a bool, found type '<class 'int'>'"),
        ("    def is_ready(self): raise ValueError('ü')", False, "is_ready failed: ValueError: ü"),
    ],
)
def test_is_ready_is_asked(start_worker, write_model, body, ready, reason):
    driver = start_worker(write_model(READY + body))
    driver.worker.ask_ready(5)
    driver.pump(lambda: any(isinstance(event, Readiness) for event in driver.events))
    answer = next(event for event in driver.events if isinstance(event, Readiness))
    assert (answer.token, answer.ready) == (5, ready)
    assert answer.reason.startswith(reason)
    assert bool(answer.reason) == bool(reason)


def test_a_dead_stream_is_failed(start_worker):
    driver = start_worker("script", decoupled=True)
    batch = driver.send(
        Request(
            inputs={"CODE": np.array([(SENDER + "s.send(R); self.kept.append(s); result = None").encode()], object)}
        )
    )
    driver.pump(lambda: len(driver.replies(batch)) == 1)
    driver.fail("os._exit(1)")
    last = driver.replies(batch)[-1]
    assert last.final
    assert last.error.code is Code.INTERNAL
    assert "Stub process 'script_0_0' is not healthy." in last.error.message
