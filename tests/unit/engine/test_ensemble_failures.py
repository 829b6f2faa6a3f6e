"""Ensembles whose steps fail, whose tensors do not fit, and whose clients go."""

from __future__ import annotations

from bident.errors import Code, ServeError
from tests.unit.engine.engine_fakes import (
    THREAD,
    Asked,
    answered,
    ask,
    failures,
    infer,
    on_loop,
    running,
    tensor,
    turns,
)
from tests.unit.engine.ensemble_stage import Stage, io, reached, step, total, values

TWO = io("A:FP32:2 B:FP32:2", "Y:FP32:2")


# Errors


@on_loop
async def test_a_failing_step_fails_the_request_with_its_code_and_ends_the_others() -> None:
    stage = Stage()
    slow, broken = stage.open("slow"), stage.open("broken")
    never = stage.echo("never", total, io=TWO)
    ensemble = stage.ensemble(step("slow", "X=X", "Y=a"), step("broken", "X=X", "Y=b"), step("never", "A=a B=b", "Y=Y"))
    request = ask(1, model="e", request_id="mine")
    infer(ensemble, request)
    await reached(slow, broken)

    broken.say(error=ServeError(Code.UNAVAILABLE, "it is broken"))

    assert request.error.code is Code.UNAVAILABLE
    assert request.error.message == "in ensemble 'e', it is broken"
    assert slow.cancelled == list(slow.asked[0][0]) == stage.cancelled
    slow.say([1, 2])
    assert len(request.answers) == 1
    assert not never.batches
    assert ensemble.scheduler.is_idle
    assert failures(ensemble) == {"OTHER": 1}
    assert ensemble.stats.success.count == 0


@on_loop
async def test_a_queue_that_is_full_fails_the_request_of_the_step() -> None:
    stage = Stage()
    model = stage.plus("m", 1, text="dynamic_batching { default_queue_policy { max_queue_size: 1 } }")
    ensemble = stage.ensemble(step("m", "X=X", "Y=Y"))
    model.hold()
    blocker, waiting, refused = (ask(index, model="e") for index in range(3))
    infer(ensemble, blocker)
    await running(model)

    infer(ensemble, waiting, refused)

    assert refused.error.code is Code.UNAVAILABLE
    assert "in ensemble 'e', Exceeds maximum queue size" in refused.error.message
    model.release()
    await answered(blocker, waiting)


@on_loop
async def test_a_number_out_of_range_is_found_by_the_first_member_and_costs_only_its_request() -> None:
    stage = Stage()
    bytes_in = io("X:UINT8:1", "Y:UINT8:1")
    stage.echo("m", io=bytes_in)
    ensemble = stage.ensemble(step("m", "X=X", "Y=Y"), io=bytes_in)
    datatype = ensemble.config.inputs["X"].datatype
    good, bad = (Asked(tensor("X", [number], (1, 1), datatype), model="e") for number in (1, 256))

    infer(ensemble, good, bad)
    await answered(good, bad)

    assert values(good) == [[1]]
    assert bad.error.code is Code.INVALID_ARG


@on_loop
async def test_sizes_that_only_show_at_run_time_are_refused_by_the_member_they_do_not_fit() -> None:
    stage = Stage()
    stage.echo("any", io=io("X:FP32:-1", "Y:FP32:-1"))
    stage.echo("five", io=io("X:FP32:5", "Y:FP32:5"))
    ensemble = stage.ensemble(step("any", "X=X", "Y=t"), step("five", "X=t", "Y=Y"), io=io("X:FP32:-1", "Y:FP32:5"))
    fits, does_not = (Asked(tensor("X", [0.0] * size, (1, size)), model="e") for size in (5, 6))

    infer(ensemble, fits, does_not)
    await answered(fits, does_not)

    assert values(fits) == [[0] * 5]
    assert does_not.error.code is Code.INVALID_ARG
    assert "in ensemble 'e', " in does_not.error.message
    assert "unexpected shape for input 'X' for model 'five'. Expected [-1,5], got [1,6]" in does_not.error.message


@on_loop
async def test_an_output_that_is_not_as_declared_is_refused_rather_than_passed_on() -> None:
    stage = Stage()
    stage.echo("any", io=io("X:FP32:-1", "Y:FP32:-1"))
    ensemble = stage.ensemble(step("any", "X=X", "Y=Y"), io=io("X:FP32:-1", "Y:FP32:5"))
    request = Asked(tensor("X", [0.0] * 6, (1, 6)), model="e")

    infer(ensemble, request)
    await answered(request)

    assert request.error.code is Code.INTERNAL
    assert "in ensemble 'e', output 'Y' of model 'e' has shape [1, 6]" in request.error.message
    assert ensemble.scheduler.is_idle


# Cancellation


@on_loop
async def test_a_client_that_goes_takes_queued_steps_out_and_running_ones_are_told() -> None:
    stage = Stage()
    runs, waits = stage.open("runs"), stage.plus("waits", 1, text=THREAD)
    after = stage.echo("after", total, io=TWO)
    ensemble = stage.ensemble(step("runs", "X=X", "Y=a"), step("waits", "X=X", "Y=b"), step("after", "A=a B=b", "Y=Y"))
    waits.hold()
    blocker = ask(9)
    infer(stage.models["waits"], blocker)
    await running(waits)
    request = ask(1, model="e")
    infer(ensemble, request)
    await reached(runs)

    request.cancelled = True
    ensemble.scheduler.discard_cancelled()

    assert request.error.code is Code.CANCELLED
    assert len(runs.cancelled) == 1
    assert stage.models["waits"].scheduler.pending == 0
    assert failures(ensemble) == {"CANCELED": 1}
    assert failures(stage.models["waits"]) == {"CANCELED": 1}
    runs.say([1, 2])
    waits.release()
    await answered(blocker)
    assert not after.batches
    assert ensemble.scheduler.is_idle


@on_loop
async def test_no_step_begins_for_a_client_that_has_gone() -> None:
    stage = Stage()
    first = stage.open("first")
    second = stage.plus("second", 1)
    ensemble = stage.ensemble(step("first", "X=X", "Y=t"), step("second", "X=t", "Y=Y"))
    request = ask(1, model="e")
    infer(ensemble, request)
    await reached(first)

    request.cancelled = True
    first.say([1, 2])
    await turns()

    assert not second.batches
    assert request.error.code is Code.CANCELLED
