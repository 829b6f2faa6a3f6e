from __future__ import annotations

import signal

import pytest

from bident.text.runner import reasons
from bident.text.runner.crashes import Crashes
from bident.text.runner.limits import Limits


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def test_three_crashes_in_the_window_are_enough():
    clock = Clock()
    crashes = Crashes(Limits(crash_limit=3, crash_window=300, backoff_seconds=1), clock)
    assert (crashes.rest_seconds, crashes.backoff_seconds) == (0, 0)
    backoffs = []
    for second in (0, 100, 200):
        clock.now = 1000 + second
        crashes.add(f"at {second}")
        backoffs.append(crashes.backoff_seconds)
    assert backoffs == [0, 1, 2]
    assert (crashes.rest_seconds, crashes.reason) == (100, "at 200")
    clock.now += 100
    assert (crashes.rest_seconds, crashes.count) == (0, 2)
    crashes.clear()
    assert crashes.count == 0


def test_crashes_far_apart_never_add_up():
    clock = Clock()
    crashes = Crashes(Limits(crash_limit=2, crash_window=300), clock)
    for _ in range(10):
        clock.now += 300
        crashes.add("again")
        assert crashes.rest_seconds == 0


LOG = b"""0.00.025.271 E llama_model_load: error loading model: tensor 'x' data is not within the file bounds
0.00.025.325 E llama_model_load_from_file_impl: failed to load model
0.00.025.342 E cmn  common_init_: failed to load model 'trunc.gguf'
0.00.025.716 E srv          init: exiting due to model loading error
"""


def test_the_reason_is_what_came_first():
    assert reasons.failure(LOG) == "error loading model: tensor 'x' data is not within the file bounds"
    assert reasons.failure(b"\n".join(LOG.splitlines()[1:])) == "failed to load model"
    assert reasons.failure(b"") == ""
    assert reasons.failure(b"\xff\xfe not text\n") == ""
    assert len(reasons.failure(b"0.1 E a: " + b"x" * 4000)) <= 600


@pytest.mark.parametrize(
    ("code", "printed", "said"),
    [
        (3, b"", "its process exited with code 3"),
        (-signal.SIGKILL, b"", "killed by signal 9 (SIGKILL), perhaps because memory ran out"),
        (-signal.SIGILL, b"", "lacks an instruction"),
        (-signal.SIGABRT, b"x.cpp:1: GGML_ASSERT(n_ctx > 0) failed\nmore\n", "(SIGABRT): x.cpp:1: GGML_ASSERT(n_ctx"),
        (-signal.SIGABRT, b"x.cpp:1: GGML_ASSERT(n_ctx > 0) failed\n" + LOG, "(SIGABRT): x.cpp:1: GGML_ASSERT(n_ctx"),
        (-signal.SIGABRT, LOG, "(SIGABRT): error loading model: tensor"),
        (-200, b"", "killed by signal 200 (?)"),
    ],
)
def test_how_a_process_ended(code, printed, said):
    assert said in reasons.end(code, printed)
