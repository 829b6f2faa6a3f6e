"""Models that fail, in every way: their requests get a clear error, and nobody else notices."""

# ruff: noqa: E501 - error texts are quoted whole

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from worker_driving import MODELS, assert_gone, descriptors, is_alive, spec_of, wait_until

from bident.backends.python.host import Worker
from bident.backends.python.messages import Request
from bident.errors import Code, ServeError

PREFIX = "Failed to process the request(s) for model 'script_0_0', message: "


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise ValueError('bo€o')", "ValueError: bo€o\n\nAt:\n  <string>(1): <module>\n"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt: <EMPTY MESSAGE>\n\nAt:\n"),
        ("sys.exit(3)", "SystemExit: 3\n\nAt:\n"),
        ("raise pb_utils.TritonModelException('tme')", "TritonModelException: tme\n\nAt:\n"),
        ("result = []", "Number of InferenceResponse objects do not match the number of InferenceRequest objects. InferenceRequest(s) size is:1, and InferenceResponse(s) size is:0\n"),
        ("result = [pb_utils.InferenceResponse([])] * 2", "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:2\n"),
        ("result = None", "Expected a list in the execute return, found type '<class 'NoneType'>'."),
        ("result = (1,)", "Expected a list in the execute return, found type '<class 'tuple'>'."),
        ("result = [3]", "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'int'>'."),
        ("result = [None]", "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'NoneType'>'."),
        ("request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE); result = [pb_utils.InferenceResponse([])]", "Expected a None object in the execute function return list for reschduled request, found type"),
    ],
)  # fmt: skip
def test_what_execute_does_wrong_is_told(shared_script, code, message):
    reply = shared_script.fail(code)
    assert reply.error.code is Code.INTERNAL
    assert reply.error.message.startswith(PREFIX + message) or message in reply.error.message
    assert reply.error.message.startswith(PREFIX)
    assert shared_script.logged() == [], "the server logs the errors it is given, with the requests' ids"
    assert shared_script.script("answer = 1") == 1


@pytest.fixture(scope="module")
def shared_script():
    from worker_driving import Driver

    driver = Driver(spec_of(MODELS / "script"))
    yield driver
    driver.worker.close()


def test_the_traceback_names_every_place_and_cause(shared_script):
    code = """
def inner():
    try:
        {}['key']
    except KeyError as error:
        raise RuntimeError('outer') from error
inner()
"""
    text = shared_script.fail(code).error.message
    model = MODELS / "script" / "1" / "model.py"
    assert "RuntimeError: outer\n\nAt:\n  <string>(6): inner\n  <string>(7): <module>\n" in text
    assert f"  {model}(" in text
    assert "caused by KeyError: 'key'\n\nAt:\n  <string>(4): inner\n" in text
    assert "bident_worker" not in text


def test_64_kb_of_exception_text_arrive_and_more_is_cut(shared_script):
    text = shared_script.fail("raise ValueError('ä' * 65536)").error.message
    assert "ä" * 65536 in text
    text = shared_script.fail("raise ValueError('a' * 10_000_000)").error.message
    assert len(text) < 140_000
    assert "characters left out" in text


def test_an_error_that_cannot_be_told_is_told(shared_script):
    text = shared_script.fail("class E(Exception):\n  def __str__(self): raise ValueError\nraise E").error.message
    assert "E: <its text could not be made>" in text
    text = shared_script.fail("raise ValueError('\\ud800')").error.message
    assert "ValueError: ?" in text


def test_all_requests_of_a_failed_batch_fail(shared_script):
    def ask(code):
        return Request(inputs={"CODE": np.array([code.encode()], object)})

    replies = shared_script.run(ask("answer = 1"), ask("raise ValueError('x')"), ask("answer = 2"))
    assert [reply.error.message[: len(PREFIX)] for reply in replies] == [PREFIX] * 3


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("os.kill(os.getpid(), 9)", "killed by signal 9 (SIGKILL)"),
        ("import ctypes; ctypes.string_at(0)", "killed by signal 11 (SIGSEGV)"),
        ("os.abort()", "killed by signal 6 (SIGABRT)"),
        ("print('last words ü', flush=True); os._exit(3)", "exited with code 3"),
        ("import signal; signal.raise_signal(signal.SIGTERM)", "killed by signal 15 (SIGTERM)"),
        ("os.closerange(3, 1000)", "exited with code 70"),
    ],
)
def test_a_worker_that_dies_answers_its_requests(start_worker, code, how):
    driver = start_worker("script")
    waiting = [Request(inputs={"CODE": np.array([text.encode()], object)}) for text in ("answer = 1", code)]
    replies = driver.run(*waiting)
    assert len(replies) == 2
    for reply in replies:
        assert reply.error.code is Code.INTERNAL
        assert reply.error.message.startswith("Stub process 'script_0_0' is not healthy.")
        assert how in reply.error.message
    assert driver.died().reason == replies[0].error.message
    assert not driver.worker.alive
    with pytest.raises(ServeError, match="Stub process 'script_0_0' is not healthy"):
        driver.send(Request(inputs={}))


def test_last_words_are_told(start_worker):
    driver = start_worker("script")
    reply = driver.fail("print('last words ü'); os._exit(3)")
    assert "the last lines it printed:\nlast words ü" in reply.error.message
    driver = start_worker("script")
    assert "Fatal Python error: Segmentation fault" in driver.fail("import ctypes; ctypes.string_at(0)").error.message


def test_a_batch_sent_before_the_death_was_noticed_fails_too(start_worker):
    driver = start_worker("script")
    first = driver.send(Request(inputs={"CODE": np.array([b"os._exit(1)"], object)}))
    second = driver.send(Request(inputs={"CODE": np.array([b"answer = 1"], object)}))
    driver.pump(lambda: driver.died() is not None)
    assert [len(driver.replies(batch)) for batch in (first, second)] == [1, 1]
    assert all(driver.replies(batch)[0].error for batch in (first, second))


def started(folder, seconds=20.0, **changes):
    worker = Worker(spec_of(folder, **changes))
    try:
        with pytest.raises(ServeError) as caught:
            worker.initialize(seconds, lambda event: None)
    finally:
        worker.close()
    assert not worker.alive
    assert_gone(worker.pid)
    return caught.value.message


def test_a_model_that_cannot_be_initialised_says_why():
    file = MODELS / "fails_to_start" / "1" / "model.py"
    expected = f"ValueError: no weights for € in fails_to_start (model.py:6)\n\nAt:\n  {file}(6): initialize\n"
    assert started(MODELS / "fails_to_start") == expected


CLASS = "import os, sys, time\nclass TritonPythonModel:\n    def execute(self, requests): return []\n"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "AttributeError: module '1.model' has no attribute 'TritonPythonModel'"),
        ("class Model: pass\nclass Other: pass", "model.py defines class Model, Other"),
        ("import threading\nfrom queue import Queue", "model.py defines no class"),
        ("class TritonPythonModel: pass", "has no 'execute'; add it"),
        ("class TritonPythonModel:\n    def exectue(self, requests): return []", "it has 'exectue': did you mean 'execute'?"),
        ("def x(:", "SyntaxError: invalid syntax (model.py, line 1)"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module' (model.py:1)\nhint: this model runs under "
                                  f"{sys.executable}: install there what it imports ({sys.executable} -m pip install ...), or name"),
        (CLASS + "    def initialize(self, args): sys.exit(3)", "SystemExit: 3"),
        (CLASS + "    def initialize(self, args): os._exit(4)", "Stub process 'written_0_0' is not healthy. Its process exited with code 4"),
        (CLASS + "    def initialize(self, args): os.kill(os.getpid(), 9)", "Stub process 'written_0_0' is not healthy."),
        (CLASS + "    def __init__(self): raise RuntimeError('made')", "RuntimeError: made"),
        (CLASS + "    def initialize(self, args):\n"
                 "        import triton_python_backend_utils as pb\n"
                 "        pb.InferenceRequest(model_name='x', inputs=[], requested_output_names=['a']).exec()",
         "TritonModelException: BLS is only supported during the 'execute' function."),
        (CLASS + "    def initialize(self, args):\n"
                 "        import triton_python_backend_utils as pb\n"
                 "        pb.load_model('x')",
         "Failed to load model: Failed to process the request for model 'written_0_0', message: Server not ready"),
    ],
)  # fmt: skip
def test_models_that_do_not_load_say_why(write_model, source, message):
    assert message in started(write_model(source))


def test_a_missing_file_is_named(tmp_path):
    (tmp_path / "m" / "1").mkdir(parents=True)
    assert f"Python model file not found in '{tmp_path / 'm' / '1' / 'model.py'}'" in started(tmp_path / "m")
    assert "Model name must end with '.py'. Model name is \"model.pt\"." in started(
        tmp_path / "m", file_name="model.pt"
    )


def test_an_initialize_that_hangs_is_ended(write_model):
    folder = write_model(CLASS + "    def initialize(self, args): time.sleep(1000)")
    began = time.monotonic()
    assert "'initialize' did not return within 0.3 seconds" in started(folder, 0.3)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 3", "auto_complete_config function in model 'written' must return a valid pb.ModelConfig object."),
        ("raise ValueError('no')", "ValueError: no"),
        ("c.add_input({})", "ValueError: input in auto-complete-config function for model 'written' is missing 'name' property."),
    ],
)  # fmt: skip
def test_auto_complete_that_fails_says_why(write_model, body, message):
    folder = write_model(CLASS + f"    @staticmethod\n    def auto_complete_config(c):\n        {body}")
    worker = Worker(spec_of(folder))
    with pytest.raises(ServeError) as caught:
        worker.complete(20, lambda event: None)
    assert message in caught.value.message
    assert_gone(worker.pid)


def test_an_interpreter_that_is_none_is_named(tmp_path):
    with pytest.raises(ServeError, match=r"Launch stub process failed for 'identity_0_0'.*nowhere"):
        Worker(spec_of(MODELS / "identity", interpreter=tmp_path / "nowhere"))


def test_finalize_runs_and_one_that_hangs_is_ended(start_worker, write_model, caplog):
    caplog.set_level("INFO", "bident.python")
    driver = start_worker("script")
    driver.worker.finalize(10, lambda event: None)
    assert_gone(driver.worker.pid)
    assert "script_0_0: finalized äöü" in caplog.messages
    driver = start_worker(write_model(CLASS + "    def finalize(self): time.sleep(1000)"))
    began = time.monotonic()
    driver.worker.finalize(0.2, lambda event: None)
    assert time.monotonic() - began < 8
    assert_gone(driver.worker.pid)
    assert not driver.worker.alive


def test_what_a_model_prints_is_logged_line_by_line(start_worker, caplog):
    caplog.set_level("INFO", "bident.python")
    driver = start_worker("script")
    driver.script(
        "print('eins\\nzwei ü'); sys.stderr.write('drei\\n'); os.write(1, b'roh \\xff\\n'); print('x' * 20000)"
    )
    driver.pump(lambda: any("roh" in message for message in caplog.messages) and len(caplog.messages) >= 7)
    said = [message.removeprefix("script_0_0: ") for message in caplog.messages]
    assert said[:4] == ["eins", "zwei ü", "drei", "roh \\xff"]
    assert "".join(said[4:]) == "x" * 20000


def test_everything_is_utf_8_in_an_ascii_locale(start_worker, write_model):
    folder = write_model(
        "import triton_python_backend_utils as pb, numpy as np, os, sys, subprocess\n"
        "class TritonPythonModel:\n"
        "    def execute(self, requests):\n"
        "        here = os.path.dirname(__file__)\n"
        "        with open(os.path.join(here, 'ф.txt'), 'w') as f: f.write('€')\n"
        "        print(open(os.path.join(here, 'ф.txt')).read(), os.listdir(here))\n"
        "        child = subprocess.run([sys.executable, '-c', 'print(chr(8364))'], capture_output=True, text=True).stdout\n"
        "        text = requests[0].inputs()[0].as_numpy()[0].decode()\n"
        "        words = [text, child.strip(), sys.getfilesystemencoding(), open(__file__).encoding.lower()]\n"
        "        return [pb.InferenceResponse([pb.Tensor('OUT', np.array(words, object))])]\n",
        name="модель",
    )
    driver = start_worker(folder, environment={"LC_ALL": "C", "LANG": "C", "PYTHONCOERCECLOCALE": "0"})
    reply = driver.run(Request(inputs={"IN": np.array(["фы€\U0001f600".encode()], object)}))[0]
    assert reply.error is None
    assert [item.decode() for item in reply.outputs["OUT"]] == ["фы€\U0001f600", "€", "utf-8", "utf-8"]


def test_children_of_the_worker_end_with_it(start_worker):
    driver = start_worker("script")
    child = driver.script(
        "import subprocess; self.child = subprocess.Popen(['sleep', '1000']); answer = self.child.pid"
    )
    assert is_alive(child)
    driver.fail("os.kill(os.getpid(), 9)")
    assert_gone(child)


SERVER = """
import sys, time
sys.path.insert(0, {tests!r})
from worker_driving import MODELS, Driver, spec_of
import numpy as np
from bident.backends.python.messages import Request

driver = Driver(spec_of(MODELS / "script"))
code = {code!r}
driver.send(Request(inputs={{"CODE": np.array([code.encode()], object)}}))
time.sleep(1000)
"""
STARTS_OTHERS = """
import ctypes, multiprocessing, subprocess
popen = subprocess.Popen(['sleep', '1000'])
fork = os.fork()
if fork == 0:
    time.sleep(1000)
pool = multiprocessing.get_context('fork').Pool(2)
pids = [os.getpid(), popen.pid, fork] + [process.pid for process in pool._pool]
with open({notes!r} + '.part', 'w') as file:
    file.write(' '.join(map(str, pids)))
os.rename({notes!r} + '.part', {notes!r})
"""


@pytest.mark.parametrize("stuck", ["time.sleep(1000)", "ctypes.PyDLL(None).sleep(1000)"], ids=["asleep", "native"])
def test_nothing_outlives_a_killed_server(tmp_path, stuck):
    notes = tmp_path / "pids"
    code = STARTS_OTHERS.format(notes=str(notes)) + stuck  # the latter never lets another thread run
    source = SERVER.format(tests=str(Path(__file__).parent), code=code)
    server = subprocess.Popen([sys.executable, "-c", source])
    try:
        wait_until(lambda: notes.exists() or server.poll() is not None)
        pids = [int(pid) for pid in notes.read_text().split()]
        assert len(pids) == 5
        assert all(map(is_alive, pids))
    finally:
        server.kill()
        server.wait()
    for pid in pids:
        assert_gone(pid)


def test_a_child_in_its_own_session_is_not_listened_to_for_ever(start_worker):
    start_worker("script").worker.close()
    before, threads = descriptors(), threading.active_count()
    driver = start_worker("script")
    child = driver.script("import subprocess; answer = subprocess.Popen(['sleep', '1000'], start_new_session=True).pid")
    try:
        driver.worker.close()
        wait_until(lambda: descriptors() <= before and threading.active_count() <= threads)
        assert is_alive(child)
    finally:
        os.kill(child, signal.SIGKILL)


def test_long_lines_are_logged_in_pieces(start_worker, caplog):
    caplog.set_level("INFO", "bident.python")
    driver = start_worker("script")
    driver.script("print('a' * 20000 + 'b\\n\\nlast', end='', flush=True)")
    driver.worker.finalize(10, lambda event: None)
    text = "".join(record.getMessage().removeprefix("script_0_0: ") for record in caplog.records)
    assert text.startswith("a" * 20000 + "blast")
    assert max(len(record.getMessage()) for record in caplog.records) < 8300


def test_a_forked_child_does_not_hide_the_death(start_worker):
    driver = start_worker("script")
    code = "pid = os.fork()\nif pid == 0:\n  os.setsid(); time.sleep(30); os._exit(0)\nself.pid = pid; answer = pid"
    child = driver.script(code)
    try:
        began = time.monotonic()
        assert "SIGKILL" in driver.fail("os.kill(os.getpid(), 9)").error.message
        assert time.monotonic() - began < 5
    finally:
        os.kill(child, signal.SIGKILL)


def test_nothing_is_left_open(start_worker):
    start_worker("identity").worker.close()
    before = descriptors()
    for number in range(4):
        driver = start_worker("identity")
        driver.run(Request(inputs={"IN0": np.zeros(100_000)}))
        if number % 2:
            driver.worker.finalize(10, lambda event: None)
        else:
            os.kill(driver.worker.pid, signal.SIGKILL)
            driver.pump(lambda driver=driver: driver.died() is not None)
        assert_gone(driver.worker.pid)
        driver.events.clear()
    wait_until(lambda: descriptors() <= before)


def test_a_fork_of_the_worker_does_not_speak_for_it(start_worker):
    driver = start_worker("script", decoupled=True)
    code = """
sender = request.get_response_sender()
pid = os.fork()
if pid == 0:
    said = caught(lambda: pb_utils.Logger.log_info('from the fork'))
    del sender, request, requests
    os._exit(7 if said and 'fork of' in said[1] else 8)
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
sender.send(pb_utils.InferenceResponse([pb_utils.Tensor('Y', np.array([status]))]), 1)
result = None
"""
    replies = driver.run(Request(inputs={"CODE": np.array([code.encode()], object)}))
    assert [reply.outputs["Y"].tolist() for reply in replies] == [[7]]
    assert driver.logged() == []
