"""What is added to errors that tell the author of a model too little."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from worker_driving import MODELS, spec_of

from bident.backends.base import BackendOptions, Device, ModelFiles
from bident.backends.python import PythonBackend
from bident.backends.python.metrics import CustomMetrics
from bident.backends.python.supervisor import Patience, State, Supervisor
from bident.errors import ConfigError, ServeError
from bident.model import pbtxt
from bident.model.config import ModelConfig

RESPONSE = "pb_utils.InferenceResponse([pb_utils.Tensor('OUT0', np.zeros(1))])"


@pytest.fixture(scope="module")
def shared():
    from worker_driving import Driver

    driver = Driver(spec_of(MODELS / "script"))
    yield driver
    driver.worker.close()


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (
            "pb_utils.get_input_tensor_by_name(request, 'CODES').as_numpy()",
            "the request has no input 'CODES', it has 'CODE'; did you mean 'CODE'?",
        ),
        (
            f"pb_utils.get_output_tensor_by_name({RESPONSE}, 'x').as_numpy()",
            "the response has no output 'x', it has 'OUT0'",
        ),
        (
            "e = pb_utils.InferenceResponse(error=pb_utils.TritonError('e'))\n"
            "pb_utils.get_output_tensor_by_name(e, 'x').name()",
            "the response failed, and has no output 'x', it has none",
        ),
        (
            "pb_utils.get_output_config_by_name({'output': [{'name': 'OUTPUT0'}]}, 'OUTPT0')['data_type']",
            "the model's configuration has no output 'OUTPT0', it has 'OUTPUT0'; did you mean 'OUTPUT0'?",
        ),
    ],
)
def test_what_was_looked_up_in_vain_is_told_when_its_none_is_used(shared, code, hint):
    assert f"\nhint: {hint}\n\nAt:\n" in shared.fail(code).error.message


def test_a_lookup_in_vain_is_no_fault_by_itself(shared):
    assert shared.script("answer = pb_utils.get_input_tensor_by_name(request, 'optional')") is None
    assert "hint" not in shared.fail("None.x").error.message, "that lookup was of another execution"
    assert "hint" not in shared.fail("pb_utils.get_input_tensor_by_name(request, 'z'); raise ValueError").error.message


@pytest.mark.parametrize("apart", ["", "response = pb_utils.InferenceResponse(made, parameters={'apart': 1})"])
def test_a_response_that_lacks_what_is_wanted_tells_what_it_has(shared, apart):
    made = "made = [pb_utils.Tensor(name, np.zeros(1)) for name in ('ONE', 'TWO')]\n"
    code = made + (apart or "response = pb_utils.InferenceResponse(made)")
    assert list(shared.fail(code, outputs=["ONE"]).outputs) == ["ONE"]
    assert list(shared.fail(code, outputs=["ONE", "THREE"]).outputs) == ["ONE", "TWO"]


def test_a_tensor_that_is_no_list_is_called_so(shared):
    tensor = "pb_utils.Tensor('OUT0', np.zeros(1))"
    made = shared.script(f"answer = caught(lambda: pb_utils.InferenceResponse({tensor}))")
    assert made == ["TypeError", "output_tensors takes a list of pb_utils.Tensor, found a Tensor: write [tensor]"]
    asked = f"pb_utils.InferenceRequest(model_name='m', requested_output_names=['o'], inputs={tensor})"
    assert shared.script(f"answer = caught(lambda: {asked})")[1].startswith("inputs takes a list of pb_utils.Tensor")
    none = shared.script("answer = caught(lambda: pb_utils.InferenceResponse(3))")[1]
    assert none == "output_tensors takes a list of pb_utils.Tensor, found <class 'int'>"


def test_an_answer_that_was_not_awaited_says_so(start_worker, write_model):
    source = (
        "import triton_python_backend_utils as pb\nclass TritonPythonModel:\n"
        "    async def execute(self, requests):\n"
        "        request = pb.InferenceRequest(model_name='m', requested_output_names=['o'], inputs=[])\n"
        "        request.async_exec().has_error()\n"
    )
    driver = start_worker(write_model(source))
    message = driver.fail("").error.message
    assert "has no attribute 'has_error'; did you forget to await it?" in message


def test_a_method_that_nobody_calls_is_warned_of(start_worker, write_model):
    source = (
        "class TritonPythonModel:\n    def initialise(self, args): pass\n    def execute(self, requests): return []\n"
    )
    driver = start_worker(write_model(source))
    assert driver.logged() == ["nobody calls 'initialise' of 'TritonPythonModel'; did you mean 'initialize'?"]


def test_the_place_in_the_model_is_in_the_first_line_whatever_the_text(start_worker, write_model):
    source = (
        "import json\nclass TritonPythonModel:\n    def execute(self, requests): return []\n"
        "    def initialize(self, args):\n        raise ValueError('one\\ntwo')\n"
    )
    with pytest.raises(ServeError, match=r"^ValueError: one \(model.py:5\)\ntwo\n"):
        start_worker(write_model(source))
    with pytest.raises(ServeError, match=r"^JSONDecodeError: .* \(model.py:5\)\n"):
        start_worker(write_model(source.replace("raise ValueError('one\\ntwo')", "json.loads('x')"), "other"))


def test_a_worker_carries_its_name(start_worker):
    driver = start_worker("script")
    words = Path(f"/proc/{driver.worker.pid}/cmdline").read_bytes().split(b"\0")
    assert b"script_0_0" in words
    assert driver.script("answer = sys.argv") == [""]


def test_the_log_tells_which_process_a_worker_is(caplog):
    async def started():
        supervisor = Supervisor(spec_of(MODELS / "script"), lambda events: None, lambda state: None, CustomMetrics())
        await supervisor.start()
        pid = supervisor.worker.pid
        await supervisor.close()
        return pid

    with caplog.at_level("INFO", "bident.python"):
        pid = asyncio.run(asyncio.wait_for(started(), 30))
    assert f"script_0_0: its worker is process {pid}" in caplog.messages


def test_a_model_that_was_given_up_says_what_helps_in_every_control_mode(write_model):
    source = (
        "import os\nclass TritonPythonModel:\n    def initialize(self, args):\n"
        "        first = os.path.join(os.path.dirname(__file__), 'first')\n"
        "        if os.path.exists(first): raise ValueError('no more')\n"
        "        open(first, 'w').close()\n    def execute(self, requests): os._exit(5)\n"
    )

    async def given_up():
        changed = asyncio.Event()
        patience = Patience(backoff_seconds=0.01, restart_limit=2)
        supervisor = Supervisor(
            spec_of(write_model(source)), lambda events: None, lambda state: changed.set(), CustomMetrics(), patience
        )
        await supervisor.start()
        supervisor.worker.kill("the test ends it")
        while supervisor.state is not State.FAILED:
            changed.clear()
            await changed.wait()
        reason = supervisor.reason
        await supervisor.close()
        return reason

    reason = asyncio.run(asyncio.wait_for(given_up(), 30))
    cure = "restart the server, or load the model again where --model-control-mode=explicit"
    assert reason.startswith(f"It was started 2 times in vain: {cure}. ValueError: no more (model.py:")


@pytest.mark.parametrize("completes", [False, True])
def test_a_model_without_any_declaration_is_told_to_write_one(write_model, tmp_path, completes):
    extra = "    @staticmethod\n    def auto_complete_config(config): return config\n" if completes else ""
    folder = write_model(f"class TritonPythonModel:\n    def execute(self, requests): return []\n{extra}")
    config = ModelConfig.from_proto(pbtxt.parse(b'name: "written" backend: "python"', "nowhere"))
    backend = PythonBackend(BackendOptions(cache_directory=tmp_path / "cache"))
    with pytest.raises(ConfigError, match=f"there is no config.pbtxt in {folder}") as refused:
        backend.load(ModelFiles(folder, 1), config, Device())
    assert ("has no auto_complete_config" in refused.value.message) is not completes
    template = refused.value.message.partition("write one: ")[2]
    assert ModelConfig.from_proto(pbtxt.parse(template.encode(), "the template")).outputs
    (folder / "config.pbtxt").write_text('backend: "python"')
    backend.load(ModelFiles(folder, 1), config, Device())
