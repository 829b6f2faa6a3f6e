"""A trusted model runs inside the server as it does in a worker: what it is given, and what becomes of its answers."""

# ruff: noqa: E501 - models are written in one line

from __future__ import annotations

import asyncio
import logging
import threading
import weakref

import ml_dtypes
import numpy as np
import pytest
from inside_site import Site, asked, code, in_loop, until, write

from bident.backends.python.supervisor import Patience
from bident.errors import Code, ServeError

PB = "import triton_python_backend_utils as pb\nimport numpy as np\n"


def model(body, more=""):
    return f"{PB}{more}class TritonPythonModel:\n" + "".join(f"    {line}\n" for line in body.splitlines())


ECHO = "[pb.InferenceResponse([pb.Tensor('OUT', r.inputs()[0].as_numpy())]) for r in requests]"


@in_loop
async def test_a_merged_batch_is_answered_together(start):
    site = await start("identity")
    rows = np.arange(24, dtype=np.float32).reshape(6, 4)
    told = await site.run(*[asked({"IN0": rows[:n]}, rows=n) for n in (1, 2, 3)], inputs={"IN0": rows})
    outputs, counts = told.together
    assert counts == [1, 2, 3]
    np.testing.assert_array_equal(outputs["OUT0"], rows)
    start_ns, end_ns = told.ran
    assert 0 <= end_ns - start_ns < 5e9


@in_loop
async def test_what_a_request_says_reaches_the_model(start):
    site = await start("script")
    said = await site.script(
        "answer = [request.request_id(), request.correlation_id(), request.flags(), request.timeout(),"
        " request.priority(), request.parameters(), sorted(request.requested_output_names()),"
        " request.trace().get_context(), request.is_cancelled()]",
        id="ид-1",
        sequence_id="seq é",
        sequence_start=True,
        sequence_end=True,
        timeout_us=7,
        priority=3,
        parameters={"k": "v", "n": 1},
        outputs=["ANSWER"],
    )
    assert said == ["ид-1", "seq é", 3, 7, 3, '{"k":"v","n":1}', ["ANSWER"], None, False]
    plain = "answer = [request.request_id(), request.correlation_id(), request.flags(), request.parameters()]"
    assert await site.script(plain) == ["", 0, 0, "{}"]


@in_loop
async def test_only_the_outputs_that_a_request_wants_come_back(start):
    config = {"output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32"}]}
    site = await start("add_sub", config=config)
    inputs = {"INPUT0": np.full((2, 4), 3, np.float32), "INPUT1": np.ones((2, 4), np.float32)}
    alike = await site.run(asked({}, outputs=["OUTPUT1"]), asked({}, outputs=["OUTPUT1"]), inputs=inputs)
    assert list(alike.together[0]) == ["OUTPUT1"]
    mixed = await site.run(asked({}, outputs=["OUTPUT0"]), asked({}), inputs=inputs)
    assert [list(reply[0][0]) for reply in mixed.replies] == [["OUTPUT0"], ["OUTPUT0", "OUTPUT1"]]


@pytest.mark.parametrize("dtype", ["?", "u1", "i2", "<i8", ">i4", "f2", "f8", ml_dtypes.bfloat16])
@in_loop
async def test_datatypes_pass_through(start, tmp_path, dtype):
    echo = "def execute(self, requests): return [pb.InferenceResponse([pb.Tensor.from_dlpack('OUT', r.inputs()[0].to_dlpack())]) for r in requests]"
    site = await start(write(tmp_path, model(echo)))
    array = np.array([[1, 0, 3]], dtype=dtype)
    found = (await site.run(asked({"IN": array}))).output("OUT")
    assert found.dtype == array.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found, array)


@in_loop
async def test_strings_become_bytes(start):
    site = await start("script")
    texts = "pb_utils.Tensor('S', np.array([['é', b'\\xff\\x00'], [7, bytearray(b'x')]], dtype=object))"
    fixed = "pb_utils.Tensor('F', np.array([b'a\\x00b', b'c']))"
    told = await site.run(asked({"CODE": code(f"response = pb_utils.InferenceResponse([{texts}, {fixed}])")}))
    assert told.output("S").tolist() == [["é".encode(), b"\xff\x00"], [b"7", b"x"]]
    assert told.output("F").tolist() == [b"a\x00b", b"c"]


# Whose memory it is


@in_loop
async def test_a_model_may_write_to_its_inputs_and_nobody_else_sees_it(start, tmp_path):
    body = "def execute(self, requests):\n    for r in requests: r.inputs()[0].as_numpy()[...] += 1\n"
    site = await start(write(tmp_path, model(body + f"    return {ECHO}")))
    given = np.zeros((1, 3), np.float32)
    given.flags.writeable = False
    assert (await site.run(asked({"IN": given}))).output("OUT").tolist() == [[1, 1, 1]]
    assert given.tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("size", [4, 100_000])
@in_loop
async def test_a_model_may_use_its_output_arrays_again(start, tmp_path, size):
    body = "def execute(self, requests):\n    self.count = getattr(self, 'count', 0) + 1\n    self.kept = getattr(self, 'kept', None)\n"
    body += f"    if self.kept is None: self.kept = np.empty({size})\n    self.kept[:] = self.count\n"
    body += "    return [pb.InferenceResponse([pb.Tensor('OUT', self.kept)]) for _ in requests]"
    site = await start(write(tmp_path, model(body)))
    first = (await site.run(asked({}))).output("OUT")
    second = (await site.run(asked({}))).output("OUT")
    assert (first[0], second[0]) == (1, 2)


@pytest.mark.parametrize(
    ("kept", "copied"), [("", False), ("self.kept = responses", True), ("self.kept = x[:5]", True)]
)
@in_loop
async def test_a_large_array_that_nobody_holds_is_not_copied(start, tmp_path, kept, copied):
    body = "def execute(self, requests):\n    x = np.ones(100_000)\n    self.address = x.ctypes.data\n"
    body += f"    responses = [pb.InferenceResponse([pb.Tensor('OUT', x.reshape(100, -1))])]\n    {kept or 'pass'}\n    return responses"
    site = await start(write(tmp_path, model(body)))
    found = (await site.run(asked({}))).output("OUT")
    address = site.instance._host._thread._model._model.address
    assert (found.ctypes.data != address) is copied


@in_loop
async def test_nothing_of_a_batch_is_kept_after_it(start):
    site = await start("identity")
    array = np.ones((1, 4), np.float32)
    gone = weakref.ref(array)
    told = await site.run(asked({"IN0": array}))
    del array, told
    await until(lambda: gone() is None)


# Answers in every form


@in_loop
async def test_an_asynchronous_model(start):
    site = await start("bls")
    told = await site.run(asked({"MODE": np.array([b"async"], object)}))
    assert told.output("SUM").tolist() == [10 * sum(range(50))]


@in_loop
async def test_a_decoupled_model_answers_from_its_threads(start):
    site = await start("repeat", decoupled=True)
    told = site.send(asked({"IN0": np.array([3, 1, 2], np.int32)}))
    await told.over()
    assert [outputs["OUT0"].tolist() for outputs, _, _ in told.replies[0][:-1]] == [[3], [1], [2]]
    assert told.replies[0][-1] == ({}, None, None)


@in_loop
async def test_executions_of_an_asynchronous_decoupled_model_overlap(start):
    site = await start("repeat_async", decoupled=True)
    first = site.send(asked({"IN0": np.array([1], np.int32)}))
    await until(lambda: first.ran)
    second = site.send(asked({"IN0": np.array([2, 3], np.int32)}))
    await first.over()
    await second.over()
    assert [outputs["OUT0"].tolist() for outputs, _, _ in second.replies[0][:-1]] == [[2], [3]]


@in_loop
async def test_parameters_and_errors_of_responses(start):
    site = await start("script")
    tensor = "pb_utils.Tensor('A', np.ones(1))"
    told = await site.run(
        asked({"CODE": code(f"response = pb_utils.InferenceResponse([{tensor}], parameters={{'a': 1}})")})
    )
    assert told.replies[0][0][2] == {"a": 1}
    failed = await site.refused(
        "response = pb_utils.InferenceResponse(error=pb_utils.TritonError('no', pb_utils.TritonError.NOT_FOUND))"
    )
    assert (failed.code, failed.message) == (Code.NOT_FOUND, "no")


@in_loop
async def test_the_answer_of_a_sender_that_is_let_go_of(start):
    site = await start("script", decoupled=True)
    told = await site.run(asked({"CODE": code("request.get_response_sender(); result = None")}))
    assert "without a final response" in told.error().message


# What goes wrong


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("raise ValueError('€')", "ValueError: €"),
        ("sys.exit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("result = 5", "Expected a list in the execute return, found type '<class 'int'>'"),
    ],
)
@in_loop
async def test_what_a_model_raises_costs_its_batch_the_answer(start, what, said):
    site = await start("script")
    error = await site.refused(what)
    assert error.code is Code.INTERNAL
    assert error.message.startswith("Failed to process the request(s) for model 'script_0_0', message: ")
    assert said in error.message
    assert "bident" not in error.message
    assert await site.script("answer = 1") == 1


@in_loop
async def test_the_event_loop_goes_on_while_a_model_works(start):
    site = await start("script")
    told = site.send(
        asked({"CODE": code("deadline = time.monotonic() + 0.3\nwhile time.monotonic() < deadline: pass")})
    )
    ticks = 0
    while told.ran is None:
        await asyncio.sleep(0.001)
        ticks += 1
    assert ticks > 5
    await told.over()


@in_loop
async def test_clients_that_have_gone_are_known_to_the_model(start, tmp_path):
    site = await start("slow")
    requests = [asked({}), asked({})]
    told = site.send(*requests, inputs={"IN0": np.array([str(tmp_path / "never").encode()] * 2, object)})
    site.instance.cancel(told, [0])
    site.instance.cancel(told, [1])
    await told.over()
    assert told.together[0]["CANCELLED"].tolist() == [True, True]


@in_loop
async def test_a_model_that_cannot_be_started_says_why(start, tmp_path):
    site = Site("fails_to_start")
    with pytest.raises(ServeError, match="ValueError: no weights for € in fails_to_start") as caught:
        await site.start()
    assert "bident" not in caught.value.message
    assert site.instance.is_lost
    with pytest.raises(ServeError, match="has no attribute 'TritonPythonModel'"):
        await start(write(tmp_path, "x = 1"))
    with pytest.raises(ServeError, match="no weights"):
        site.send(asked({}))
    await site.instance.close()


@in_loop
async def test_an_initialize_that_does_not_return_is_given_up(start, tmp_path):
    holding = "import inside_gate\n"
    body = "def initialize(self, args): inside_gate.opened.wait()\ndef execute(self, requests): return []\n"
    body += "def finalize(self): inside_gate.finalized.set()"
    gate = _gate()
    site = Site(write(tmp_path, model(body, holding)), Patience(start_seconds=0.2))
    with pytest.raises(ServeError, match=r"'initialize' did not return within 0\.2 seconds"):
        await site.start()
    gate.opened.set()
    assert await asyncio.to_thread(gate.finalized.wait, 10), "what it holds is given back when it returns"


def _gate():
    """A module that models can import, to wait for the test and to let it know."""
    import sys
    import types

    module = sys.modules["inside_gate"] = types.ModuleType("inside_gate")
    module.entered, module.opened, module.finalized = threading.Event(), threading.Event(), threading.Event()
    return module


@in_loop
async def test_a_model_that_never_returns_does_not_keep_its_unloading(start, tmp_path, caplog):
    gate = _gate()
    body = "def execute(self, requests):\n    inside_gate.entered.set()\n    inside_gate.opened.wait()\n    return []"
    site = await start(write(tmp_path, model(body, "import inside_gate\n")), Patience(finalize_seconds=0.1))
    told = site.send(asked({}))
    await until(gate.entered.is_set)
    await site.instance.close()
    assert told.error().code is Code.UNAVAILABLE
    assert "has not returned within 0.1 seconds" in caplog.text
    name = f"bident {tmp_path.name}_0_0"
    thread = next(thread for thread in threading.enumerate() if thread.name == name)
    assert thread.daemon
    gate.opened.set()
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()


@in_loop
async def test_closing_finalizes_the_model_and_ends_its_thread(start, capfd):
    site = await start("script")
    name = "bident script_0_0"
    assert [thread.name for thread in threading.enumerate()].count(name) == 1
    await site.instance.close()
    assert site.instance.is_lost
    assert "finalized" in capfd.readouterr().out
    await until(lambda: name not in [thread.name for thread in threading.enumerate()])
    with pytest.raises(ServeError, match="closed"):
        site.send(asked({}))


@in_loop
async def test_it_is_ready_when_its_model_says_so(start, tmp_path, caplog):
    body = "async def is_ready(self): return self.ready()\ndef execute(self, requests): return []\n"
    body += "def initialize(self, args): self.answers = [True, False, 1]\ndef ready(self): return self.answers.pop(0)"
    site = await start(write(tmp_path, model(body)))
    assert [await site.instance.is_ready() for _ in range(4)] == [True, False, False, False]
    assert "is_ready must return a bool" in caplog.text
    assert "IndexError" in caplog.text


@in_loop
async def test_what_a_model_logs_is_logged(start, caplog):
    caplog.set_level(logging.DEBUG, "bident.python")
    site = await start("script")
    await site.script("pb_utils.Logger.log_warn('warm ä'); pb_utils.Logger.log_verbose('cold')")
    found = {(record.levelname, record.getMessage().partition(" (")[0]) for record in caplog.records}
    assert {("WARNING", "script_0_0: warm ä"), ("DEBUG", "script_0_0: cold")} <= found
