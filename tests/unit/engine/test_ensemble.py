"""Requests on their way through an ensemble: data-flow, batches, what is left out, figures."""

from __future__ import annotations

import gc
import weakref
from itertools import pairwise

import numpy as np
import pytest

from bident.errors import Code, ServeError
from bident.wire.infer import Outcome
from tests.unit.engine.engine_fakes import (
    BATCHING,
    THREAD,
    Asked,
    answer_of,
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
BOTH = io("X:FP32:2", "P:FP32:2 Q:FP32:2")


@on_loop
async def test_each_step_gets_what_the_one_before_it_made() -> None:
    stage = Stage()
    stage.plus("one", 1)
    stage.echo("double", lambda inputs: {"Y": inputs["X"] * 2})
    ensemble = stage.ensemble(step("double", "X=t", "Y=Y"), step("one", "X=X", "Y=t"))
    request = ask(3, 2, request_id="mine", model="e")

    infer(ensemble, request)
    await answered(request)

    assert values(request) == [[8, -4]] * 2
    response = request.response
    assert (response.model_name, response.model_version, response.id, response.final) == ("e", "1", "mine", True)
    assert response.parameters is None


@on_loop
async def test_branches_run_side_by_side_and_meet_when_both_are_done() -> None:
    stage = Stage()
    left, right = stage.plus("left", 1, text=THREAD), stage.plus("right", 10, text=THREAD)
    join = stage.echo("join", total, io=TWO)
    ensemble = stage.ensemble(step("left", "X=X", "Y=l"), step("right", "X=X", "Y=r"), step("join", "A=l B=r", "Y=Y"))
    left.hold()
    right.hold()
    request = ask(0, model="e")
    infer(ensemble, request)
    await running(left)
    await running(right)

    right.release()
    await turns()
    assert not join.batches
    left.release()
    await answered(request)

    assert values(request) == [[11, 11]]


@on_loop
async def test_steps_of_several_requests_share_batches_with_each_other_and_with_direct_ones() -> None:
    stage = Stage()
    model = stage.plus("m", 1)
    ensemble = stage.ensemble(step("m", "X=X", "Y=t"), step("m", "X=t", "Y=Y"))
    model.hold()
    through, direct = [ask(index, model="e") for index in range(3)], ask(100)

    infer(ensemble, *through)
    infer(stage.models["m"], direct)
    model.release()
    await answered(*through, direct)

    assert [len(batch) for batch in model.firsts] == [4, 3]
    assert [values(request)[0][0] for request in through] == [2, 3, 4]


@on_loop
async def test_tensors_pass_as_views_and_lists_stay_lists_until_the_first_batch() -> None:
    stage = Stage()
    seen: list[np.ndarray] = []

    def keep(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        seen.append(inputs["X"])
        return {"Y": inputs["X"]}

    stage.echo("m", keep)
    ensemble = stage.ensemble(step("m", "X=X", "Y=t"), step("m", "X=t", "Y=Y"))
    given = np.array([[1, 2]], np.float32)
    request = Asked(tensor("X", given, (1, 2)), model="e")

    infer(ensemble, request)
    await answered(request)

    assert all(array.base is given or array is given for array in seen)
    assert np.shares_memory(request.tensors["Y"], given)


@on_loop
async def test_a_long_chain_that_answers_at_once_needs_no_deep_stack() -> None:
    stage = Stage(clients=1)
    stage.plus("m", 1, text='parameters { key: "LANE" value { string_value: "inline" } }')
    names = ["X", *(f"t{index}" for index in range(400)), "Y"]
    ensemble = stage.ensemble(*(step("m", f"X={a}", f"Y={b}") for a, b in pairwise(names)))
    request = ask(0, model="e")

    infer(ensemble, request)

    assert values(request) == [[401, 401]]


@on_loop
async def test_a_finished_request_leaves_nothing_for_the_garbage_collector() -> None:
    stage = Stage()
    instance = stage.open("m")
    ensemble = stage.ensemble(step("m", "X=X", "Y=Y"))
    request = ask(1, model="e")
    infer(ensemble, request)
    await reached(instance)
    ((asked,), inputs) = instance.asked[0][:2]
    left = [weakref.ref(asked), weakref.ref(inputs["X"])]
    gc.collect()
    gc.disable()
    try:
        instance.say([1, 2])
        instance.asked.clear()
        del asked, inputs
        await turns()
        assert [ref() for ref in left] == [None, None]
    finally:
        gc.enable()
    assert values(request) == [[1, 2]]


@on_loop
async def test_only_the_steps_that_the_wanted_outputs_need_run() -> None:
    stage = Stage()
    wanted, other = stage.plus("wanted", 1), stage.plus("other", 2)
    ensemble = stage.ensemble(step("wanted", "X=X", "Y=P"), step("other", "X=X", "Y=Q"), io=BOTH)
    one, both = ask(0, model="e"), ask(0, model="e")
    one.outputs, both.outputs = ["P"], ["Q", "P"]

    infer(ensemble, one)
    await answered(one)
    assert [output.name for output in one.response.outputs] == ["P"]
    assert (len(wanted.batches), len(other.batches)) == (1, 0)

    infer(ensemble, both)
    await answered(both)
    assert [output.name for output in both.response.outputs] == ["Q", "P"]


@on_loop
async def test_what_the_client_said_goes_to_every_step() -> None:
    stage = Stage()
    first, second = stage.open("first"), stage.open("second")
    ensemble = stage.ensemble(step("first", "X=X", "Y=t"), step("second", "X=t", "Y=Y"))
    request = ask(1, model="e", request_id="mine")
    request.parameters = {"note": "a"}
    request.priority, request.timeout_us = 2, 7
    request.sequence_id, request.sequence_start = "s", True
    infer(ensemble, request)
    await reached(first)
    first.say([1, 2])
    await reached(second)
    second.say([1, 2])
    await answered(request)

    for instance in (first, second):
        ((asked,), _, _) = instance.asked[0]
        assert (asked.id, asked.parameters, asked.priority, asked.timeout_us) == ("mine", {"note": "a"}, 2, 7)
        assert (asked.sequence_id, asked.sequence_start, asked.sequence_end) == ("s", True, False)
    assert request.response.parameters == {"sequence_id": "s", "sequence_start": True, "sequence_end": False}


@on_loop
async def test_a_step_can_change_the_sequence_for_those_behind_it_and_its_parameters_come_out() -> None:
    stage = Stage()
    first, second, third = stage.open("first"), stage.open("second"), stage.open("third")
    ensemble = stage.ensemble(step("first", "X=X", "Y=t"), step("second", "X=t", "Y=u"), step("third", "X=u", "Y=Y"))
    request = ask(1, model="e")
    infer(ensemble, request)
    await reached(first)
    first.say([1, 2], parameters={"sequence_id": 7, "sequence_end": True, "inner": 1})
    await reached(second)
    second.say([1, 2])
    await reached(third)
    ((asked,), _, _) = third.asked[0]
    assert (asked.sequence_id, asked.sequence_start, asked.sequence_end) == (7, False, True)

    third.say([1, 2], parameters={"who": "third"})
    await answered(request)

    expected = {"sequence_id": 7, "sequence_start": False, "sequence_end": True, "who": "third"}
    assert request.response.parameters == expected


@on_loop
async def test_only_mapped_outputs_are_asked_for() -> None:
    stage = Stage()
    instance = stage.open("m", io=io("X:FP32:2", "Y:FP32:2 Z:FP32:2"))
    ensemble = stage.ensemble(step("m", "X=X", "Y=Y"))
    infer(ensemble, ask(1, model="e"))
    await reached(instance)

    ((asked,), _, _) = instance.asked[0]

    assert asked.outputs == ["Y"]


# Optional tensors


@on_loop
async def test_optional_inputs_that_are_left_out_are_left_out_for_the_step() -> None:
    stage = Stage()
    optional = io("A:FP32:2:optional B:FP32:2", "Y:FP32:2")
    model = stage.echo("m", lambda inputs: {"Y": inputs["B"]}, io=optional)
    ensemble = stage.ensemble(step("m", "A=A B=B", "Y=Y"), io=optional)
    request = Asked(tensor("B", [1.0, 2.0], (1, 2)), model="e")

    infer(ensemble, request)
    await answered(request)

    assert list(model.batches[0]) == ["B"]
    assert values(request) == [[1, 2]]


@on_loop
async def test_a_step_whose_inputs_are_all_left_out_runs_without_any() -> None:
    stage = Stage()
    none_needed = io("A:FP32:2:optional", "Y:FP32:2")
    stage.echo("m", lambda inputs: {"Y": np.full((1, 2), len(inputs), np.float32)}, io=none_needed)
    ensemble = stage.ensemble(step("m", "A=A", "Y=Y"), io=none_needed)
    request = Asked(model="e")

    infer(ensemble, request)
    await answered(request)

    assert values(request) == [[0, 0]]


@on_loop
async def test_a_required_input_that_got_nothing_is_the_members_to_refuse() -> None:
    stage = Stage()
    stage.plus("m", 1)
    ensemble = stage.ensemble(step("m", "X=A", "Y=Y"), io=io("A:FP32:2:optional", "Y:FP32:2"))
    request = Asked(model="e")

    infer(ensemble, request)

    assert request.error.code is Code.INVALID_ARG
    assert "in ensemble 'e', " in request.error.message
    assert "missing required input(s) ['X']" in request.error.message
    assert "for model 'm'" in request.error.message


@on_loop
async def test_an_output_that_a_model_left_out_goes_on_as_left_out() -> None:
    stage = Stage()
    maker = io("X:FP32:2", "Y:FP32:2 Z:FP32:2 W:FP32:2")
    stage.echo("maker", lambda inputs: {"Y": inputs["X"]}, io=maker)
    taker = stage.echo("taker", lambda inputs: {"Y": inputs["B"]}, io=io("A:FP32:2:optional B:FP32:2", "Y:FP32:2"))
    ensemble = stage.ensemble(step("maker", "X=X", "Y=y Z=z"), step("taker", "A=z B=y", "Y=Y"))
    request = ask(5, model="e")

    infer(ensemble, request)
    await answered(request)

    assert list(taker.batches[0]) == ["B"]
    assert values(request) == answer_of(5)


@pytest.mark.parametrize("wanted", [None, ["Y"], ["Y", "Z"]])
@on_loop
async def test_an_output_that_never_comes_is_left_out_unless_it_was_asked_for(wanted: list[str] | None) -> None:
    stage = Stage()
    both = io("X:FP32:2", "Y:FP32:2 Z:FP32:2")
    stage.echo("m", lambda inputs: {"Y": inputs["X"]}, io=both)
    ensemble = stage.ensemble(step("m", "X=X", "Y=Y Z=Z"), io=both)
    request = ask(1, model="e")
    request.outputs = wanted

    infer(ensemble, request)
    await answered(request)

    if wanted == ["Y", "Z"]:
        assert "in ensemble 'e', unexpected deadlock, at least one output is not set" in request.error.message
        assert "'Z'" in request.error.message
    else:
        assert [output.name for output in request.response.outputs] == ["Y"]


@on_loop
async def test_a_request_that_no_step_can_answer_gets_an_error_rather_than_nothing() -> None:
    stage = Stage()
    stage.plus("m", 1)
    ensemble = stage.ensemble(step("m", "X=X", "Y=Y"))
    request = ask(1, model="e")
    request.outputs = []

    infer(ensemble, request)

    assert request.error.code is Code.INVALID_ARG
    assert "no more ensemble steps can be made" in request.error.message


# Figures


@on_loop
async def test_the_ensemble_counts_once_and_adds_up_what_its_steps_took() -> None:
    stage = Stage()
    stage.plus("m", 1)
    ensemble = stage.ensemble(step("m", "X=X", "Y=t"), step("m", "X=t", "Y=Y"))
    request = ask(1, 3, model="e")

    infer(ensemble, request)
    await answered(request)

    whole, member = ensemble.stats, stage.models["m"].stats
    assert (whole.inferences, whole.executions, whole.success.count, whole.queue.count) == (3, 1, 1, 1)
    assert list(whole.batches) == [3]
    assert (member.inferences, member.executions, member.success.count) == (6, 2, 2)
    for name in ("queue", "compute_input", "compute_infer"):
        assert getattr(whole, name).ns == getattr(member, name).ns
    assert whole.success.ns > whole.queue.ns + whole.compute_infer.ns
    assert ensemble.scheduler.pending == 0


@on_loop
async def test_an_ensemble_within_an_ensemble_adds_its_steps_to_the_outer_one() -> None:
    stage = Stage()
    stage.plus("m", 1)
    stage.ensemble(step("m", "X=X", "Y=Y"), name="inner")
    outer = stage.ensemble(step("inner", "X=X", "Y=t"), step("m", "X=t", "Y=Y"), name="outer")
    request = ask(1, model="outer")

    infer(outer, request)
    await answered(request)

    assert values(request) == [[3, 1]]
    assert outer.stats.compute_infer.ns == stage.models["m"].stats.compute_infer.ns
    assert [servable.name for servable in outer.members] == ["inner", "m"]


@pytest.mark.parametrize(("settles", "counted"), [(True, (1, {})), (False, (0, {"OTHER": 1}))])
@on_loop
async def test_an_answer_that_is_written_later_counts_when_it_is(
    settles: bool, counted: tuple[int, dict[str, int]]
) -> None:
    stage = Stage()
    stage.plus("m", 1)
    ensemble = stage.ensemble(step("m", "X=X", "Y=Y"))
    request = ask(1, model="e")
    keep = request.reply

    def later(response):  # type: ignore[no-untyped-def]
        keep(response)
        return Outcome.LATER

    request.reply = later
    infer(ensemble, request)
    await answered(request)
    assert (ensemble.stats.success.count, failures(ensemble)) == (0, {})

    assert request.response.settled is not None
    request.response.settled(settles)

    assert (ensemble.stats.success.count, failures(ensemble)) == counted


@on_loop
async def test_the_door_is_checked_by_the_ensembles_own_declaration() -> None:
    stage = Stage()
    model = stage.plus("m", 1, text=BATCHING)
    ensemble = stage.ensemble(step("m", "X=X", "Y=Y"))

    with pytest.raises(ServeError, match="batch-size must be <= 8 for 'e'"):
        ensemble.infer(ask(1, 9, model="e"))

    assert not model.batches
