"""Ensembles with decoupled members: each answer flows on by itself, and the end comes when all have ended."""

from __future__ import annotations

import pytest

from bident.engine import ensemble_run
from bident.errors import Code, ServeError
from tests.unit.engine.engine_fakes import Asked, ask, failures, infer, on_loop, turns, until
from tests.unit.engine.ensemble_stage import Open, Stage, io, reached, step

JOIN = io("A:FP32:2 B:FP32:2", "Y:FP32:2")


def said(request: Asked) -> list[list[float] | None]:
    """The first row of each answer so far; None for one that only ends."""
    return [response.outputs[0].array[0].tolist() if response.columns else None for response in request.answers]


@on_loop
async def test_each_answer_of_a_stream_goes_through_the_steps_behind_it() -> None:
    stage = Stage()
    source = stage.open("source", decoupled=True)
    stage.plus("plus", 1)
    ensemble = stage.ensemble(step("source", "X=X", "Y=t"), step("plus", "X=t", "Y=Y"), decoupled=True)
    request = ask(0, model="e")
    infer(ensemble, request)
    await reached(source)

    source.say([1, 1], final=False)
    await until(lambda: said(request) == [[2, 2]], "the first answer")
    source.say([2, 2], final=False)
    await until(lambda: len(request.answers) == 2, "the second answer")
    source.say()

    assert said(request) == [[2, 2], [3, 3], None]
    assert [response.final for response in request.answers] == [False, False, True]
    assert (ensemble.stats.success.count, ensemble.stats.executions) == (1, 1)


@on_loop
async def test_the_end_waits_for_the_last_step_under_way() -> None:
    stage = Stage()
    source, last = stage.open("source", decoupled=True), stage.open("last")
    ensemble = stage.ensemble(step("source", "X=X", "Y=t"), step("last", "X=t", "Y=Y"), decoupled=True)
    request = ask(0, model="e")
    infer(ensemble, request)
    await reached(source)

    source.say([1, 1])
    await reached(last)
    assert not request.answers
    assert not ensemble.scheduler.is_idle
    last.say([5, 5])
    await turns()

    assert said(request) == [[5, 5]]
    assert request.response.final


@on_loop
async def test_a_stream_without_answers_is_only_an_end() -> None:
    stage = Stage()
    source = stage.open("source", decoupled=True)
    ensemble = stage.ensemble(step("source", "X=X", "Y=Y"), decoupled=True)
    request = ask(0, model="e")
    infer(ensemble, request)
    await reached(source)

    source.say()

    assert said(request) == [None]
    assert request.response.final
    assert request.response.error is None


@on_loop
async def test_streams_of_streams_end_once() -> None:
    stage = Stage()
    outer, inner = stage.open("outer", decoupled=True), stage.open("inner", decoupled=True)
    ensemble = stage.ensemble(step("outer", "X=X", "Y=t"), step("inner", "X=t", "Y=Y"), decoupled=True)
    request = ask(0, model="e")
    infer(ensemble, request)
    await reached(outer)
    outer.say([1, 1], final=False)
    outer.say([2, 2])
    await reached(inner, batches=2)

    inner.say([21, 0], batch=1, final=False)
    inner.say([11, 0], batch=0)
    await turns()
    assert said(request) == [[21, 0], [11, 0]]
    inner.say(batch=1)
    await turns()

    assert said(request) == [[21, 0], [11, 0], None]
    assert [response.final for response in request.answers] == [False, False, True]


@on_loop
async def test_what_comes_of_one_answer_meets_only_its_own() -> None:
    stage = Stage()
    source, slow = stage.open("source", decoupled=True), stage.open("slow")
    stage.echo("join", lambda inputs: {"Y": inputs["A"] * 100 + inputs["B"]}, io=JOIN)
    ensemble = stage.ensemble(
        step("source", "X=X", "Y=t"), step("slow", "X=t", "Y=s"), step("join", "A=t B=s", "Y=Y"), decoupled=True
    )
    request = ask(0, model="e")
    infer(ensemble, request)
    await reached(source)
    source.say([1, 0], final=False)
    await reached(slow)
    source.say([2, 0])
    await reached(slow, batches=2)

    slow.say([9, 0], batch=1)
    await until(lambda: request.answers, "the later answer")
    slow.say([8, 0], batch=0)
    await until(lambda: len(request.answers) == 2, "the earlier answer")

    assert said(request) == [[209, 0], [108, 0]]


@on_loop
async def test_an_error_in_the_middle_ends_the_stream() -> None:
    stage = Stage()
    source = stage.open("source", decoupled=True)
    ensemble = stage.ensemble(step("source", "X=X", "Y=Y"), decoupled=True)
    request = ask(0, model="e")
    infer(ensemble, request)
    await reached(source)

    source.say([1, 1], final=False)
    source.say(error=ServeError(Code.INTERNAL, "it broke"), final=False)
    source.say([2, 2])

    assert len(request.answers) == 2
    last = request.answers[-1]
    assert last.final
    assert last.error is not None
    assert last.error.message == "in ensemble 'e', it broke"
    assert failures(ensemble) == {"OTHER": 1}


@on_loop
async def test_a_client_that_goes_ends_the_stream_for_the_model_too() -> None:
    stage = Stage()
    source = stage.open("source", decoupled=True)
    ensemble = stage.ensemble(step("source", "X=X", "Y=Y"), decoupled=True)
    request = ask(0, model="e")
    infer(ensemble, request)
    await reached(source)
    source.say([1, 1], final=False)

    request.cancelled = True
    ensemble.scheduler.discard_cancelled()

    assert len(source.cancelled) == 1
    assert ensemble.scheduler.is_idle


@on_loop
async def test_no_more_requests_to_a_step_are_open_than_the_config_allows() -> None:
    stage = Stage()
    source, last = stage.open("source", decoupled=True), stage.open("last")
    ensemble = stage.ensemble(
        step("source", "X=X", "Y=t"),
        step("last", "X=t", "Y=Y"),
        decoupled=True,
        more="max_inflight_requests: 2",
    )
    request = ask(0, model="e")
    infer(ensemble, request)
    await reached(source)
    for number in range(4):
        source.say([number, 0], final=number == 3)
    await turns()
    assert len(last.asked) == 2

    last.say([0, 0], batch=0)
    await reached(last, batches=3)
    last.say([1, 0], batch=1)
    await reached(last, batches=4)
    last.say([2, 0], batch=2)
    last.say([3, 0], batch=3)
    await turns()

    assert said(request) == [[0, 0], [1, 0], [2, 0], [3, 0]]
    assert request.answers[-1].final


def rushing(stage: Stage, more: str = "") -> tuple[Open, Open, Asked]:
    """A source that answers as the test says, and a slow step behind it."""
    source, slow = stage.open("source", decoupled=True), stage.open("slow")
    ensemble = stage.ensemble(
        step("source", "X=X", "Y=t"), step("slow", "X=t", "Y=Y"), decoupled=True, batch=1, more=more
    )
    request = ask(0, model="e")
    infer(ensemble, request)
    return source, slow, request


@pytest.mark.parametrize("more", ["", "max_inflight_requests: 2"])
@pytest.mark.parametrize(("limit", "value"), [("MOST_WAITING", 20), ("MOST_WAITING_BYTES", 20 * 8)])
@on_loop
async def test_a_source_that_never_ends_does_not_pile_up_answers(
    monkeypatch: pytest.MonkeyPatch, more: str, limit: str, value: int
) -> None:
    monkeypatch.setattr(ensemble_run, limit, value)
    stage = Stage()
    source, _, request = rushing(stage, more)
    await reached(source)

    count = 0
    while not request.answers:
        source.say([count, 0], final=False)
        count += 1
        assert count < 100

    assert 20 <= count <= 23
    assert request.error.code is Code.UNAVAILABLE
    assert "in ensemble 'e', model 'source' answers faster than the steps behind it take" in request.error.message
    assert source.cancelled == list(source.asked[0][0])
    assert stage.models["e"].scheduler.is_idle


@on_loop
async def test_a_source_may_answer_any_number_of_times_if_they_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ensemble_run, "MOST_WAITING", 4)
    monkeypatch.setattr(ensemble_run, "MOST_WAITING_BYTES", 4 * 8)
    stage = Stage()
    source, slow, request = rushing(stage)
    await reached(source)

    for number in range(50):
        source.say([number, 0], final=False)
        await reached(slow, batches=number + 1)
        slow.say([number, 1], batch=number)
    source.say()

    assert said(request) == [*([number, 1] for number in range(50)), None]


@on_loop
async def test_a_stream_behind_a_stream_lets_go_of_what_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ensemble_run, "MOST_WAITING_BYTES", 4 * 8)
    stage = Stage()
    first, second = stage.open("first", decoupled=True), stage.open("second", decoupled=True)
    ensemble = stage.ensemble(step("first", "X=X", "Y=t"), step("second", "X=t", "Y=Y"), decoupled=True)
    request = ask(0, model="e")
    infer(ensemble, request)
    await reached(first)

    for number in range(20):
        first.say([number, 0], final=False)
        await reached(second, batches=number + 1)
        second.say([number, 1], batch=number, final=False)
        second.say(batch=number)

    assert said(request) == [[number, 1] for number in range(20)]


@on_loop
async def test_a_member_that_became_decoupled_makes_the_ensemble_unready_not_wrong() -> None:
    stage = Stage()
    stage.plus("m", 1)
    ensemble = stage.ensemble(step("m", "X=X", "Y=Y"))
    assert ensemble.is_available

    stage.open("m", decoupled=True)

    assert "a member became decoupled; load 'e' again" in ensemble.reason
    with pytest.raises(ServeError, match="ensemble 'e' is not ready"):
        ensemble.infer(ask(1, model="e"))
