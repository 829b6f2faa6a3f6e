"""What a Triton has printed, and what is made of it. The lines are those of Triton 2.51."""

from __future__ import annotations

from bident.ship.triton.causes import Said, message_of

FAILED = (
    "E1130 22:50:48.042686 14204 model_lifecycle.cc:642] \"failed to load 'm' version 1: Internal: boom"
    '\\n\\nAt:\\n  /x/model.py(31): initialize\\n"'
)
ERROR = 'E1130 22:50:48.042227 14204 backend_model.cc:692] "ERROR: Failed to create instance: boom"'
NO_GPU = 'E1130 22:38:47.907480 32303 server.cc:241] "CudaDriverHelper has not been initialized."'
ISO = '2026-11-30T22:38:47Z E 32303 main.cc:1] "creating server: Internal - failed to load all models"'
WAIT = 'I1130 22:59:06.456011 30258 server.cc:345] "Timeout 28: Found 1 live models and 0 in-flight non-inference"'


def test_errors_are_kept_once_and_without_their_place() -> None:
    said = Said(has_gpu=False)
    assert all(said.hear(line) for line in (ERROR, FAILED, FAILED, ISO, "Traceback", 'I1130 1 2 a.cc:1] "fine"'))
    assert said.causes() == [
        "failed to load 'm' version 1: Internal: boom",
        "creating server: Internal - failed to load all models",
    ]


def test_the_missing_gpu_is_no_error_where_there_is_none() -> None:
    without, with_gpu = Said(has_gpu=False), Said(has_gpu=True)
    assert not without.hear(NO_GPU)
    assert with_gpu.hear(NO_GPU)
    assert (without.causes(), len(with_gpu.causes())) == ([], 1)


def test_known_signs_are_explained() -> None:
    said = Said(has_gpu=False)
    said.hear("E1130 2 3 a.cc:1] \"Stub process 'm_0_0' is not healthy.\"")
    said.hear('E1130 2 3 a.cc:1] "unable to create shared memory region: No space left on device"')
    hints = " ".join(said.causes()[2:])
    assert "another numpy" in hints
    assert "shm_size" in hints


def test_it_is_known_whether_the_doors_have_opened() -> None:
    said = Said(has_gpu=False)
    assert not said.has_served
    said.hear('I1130 22:48:02.050297 9416 http_server.cc:4713] "Started HTTPService at 127.0.0.1:21600"')
    assert said.has_served


def test_waiting_for_a_failed_model_is_in_vain_and_for_another_it_is_not() -> None:
    patient, hopeless = Said(has_gpu=False), Said(has_gpu=False)
    hopeless.hear(FAILED)
    for _ in range(3):
        patient.hear(WAIT)
        hopeless.hear(WAIT)
    assert not patient.waits_in_vain
    assert hopeless.waits_in_vain
    hopeless.hear("I1130 1 2 model_lifecycle.cc:624] \"successfully unloaded 'm' version 1\"")
    assert not hopeless.waits_in_vain


def test_a_message_that_is_no_json_is_shown_as_it_is() -> None:
    assert message_of('"say "hello";"') == 'say "hello"'
