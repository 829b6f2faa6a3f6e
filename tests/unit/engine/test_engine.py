"""The one verb, health, figures and the repository index."""

from __future__ import annotations

from pathlib import Path

import pytest

from bident.errors import Code, ServeError
from tests.unit.engine.engine_fakes import (
    THREAD,
    Asked,
    Echo,
    answered,
    ask,
    on_loop,
    until,
)
from tests.unit.engine.engine_site import Site, write_times

# Inference


@on_loop
async def test_a_request_is_answered_under_the_name_it_asked_for(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_times(site.models, "m", "2")
    assert await site.engine.start(None) == {}
    request = ask(3, request_id="r-\u00e9")

    site.engine.infer(request)
    await answered(request)

    response = request.response
    assert (response.model_name, response.model_version, response.id) == ("m", "1", "r-\u00e9")
    assert request.tensors["Y"].tolist() == [[6, -6]]


@on_loop
async def test_unknown_and_unloaded_models_are_told_apart(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for name in ("never", "m"):
        write_times(site.models, name, "2")
    await site.engine.start(["m"])

    assert (site.no_answer("x").code, site.no_answer("x").message) == (
        Code.INVALID_ARG,
        "Request for unknown model: 'x' is not found",
    )
    assert site.no_answer("never").code is Code.NOT_FOUND
    assert "Request for unknown model: 'never' is not found" in site.no_answer("never").message
    assert site.no_answer("m", "7").code is Code.NOT_FOUND
    await site.engine.unload("m")
    await until(lambda: site.engine.lifecycle.states("m")[1].reason == "unloaded", "the unload")
    assert site.no_answer("m").code is Code.NOT_FOUND
    assert "Request for unknown model: 'm' is not found" in site.no_answer("m").message
    for odd in ("..", "", "a/b", "\0", "\ud800", "x" * 5000, ".git"):
        assert site.no_answer(odd).code is Code.INVALID_ARG


@on_loop
async def test_an_invalid_request_is_refused_before_it_queues(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_times(site.models, "m", "2")
    await site.engine.start(None)

    with pytest.raises(ServeError, match="expected 1 inputs but got 0"):
        site.engine.infer(Asked())

    assert site.engine.model("m", "").scheduler.pending == 0


@pytest.mark.parametrize("change", ["nothing", "reload", "unload"])
@on_loop
async def test_a_cancelled_request_never_runs_whatever_became_of_its_model(tmp_path: Path, change: str) -> None:
    site = Site(tmp_path)
    write_times(site.models, "m", "2", THREAD)
    await site.engine.start(None)
    old = site.backend.made[0]
    assert isinstance(old, Echo)
    old.hold()
    running, gone = ask(0), ask(1)
    site.engine.infer(running)
    await until(lambda: old.running, "an execution")
    site.engine.infer(gone)
    if change == "reload":
        write_times(site.models, "m", "3", THREAD)
        await site.engine.load("m")
    elif change == "unload":
        await site.engine.unload("m")

    site.engine.cancel(gone)

    await answered(gone)
    assert gone.error.code is Code.CANCELLED
    old.release()
    await answered(running)
    await until(lambda: old.closed or change == "nothing", "the end")
    assert old.firsts == [[0]]


@on_loop
async def test_those_who_leave_together_are_looked_for_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path)
    write_times(site.models, "m", "2", THREAD)
    await site.engine.start(None)
    instance = site.backend.made[0]
    assert isinstance(instance, Echo)
    instance.hold()
    running, *leaving = [ask(number) for number in range(100)]
    site.engine.infer(running)
    await until(lambda: instance.running, "an execution")
    for request in leaving:
        site.engine.infer(request)
    scheduler = site.engine.model("m", "").scheduler
    searches: list[int] = []
    discard = scheduler.discard_cancelled
    monkeypatch.setattr(scheduler, "discard_cancelled", lambda: searches.append(scheduler.pending) or discard())

    for request in leaving:
        site.engine.cancel(request)
    await answered(*leaving)

    assert searches == [99]
    assert {request.error.code for request in leaving} == {Code.CANCELLED}
    instance.release()
    await answered(running)


@on_loop
async def test_cancelling_what_nobody_knows_does_nothing(tmp_path: Path) -> None:
    request = ask(1, model="x")

    Site(tmp_path).engine.cancel(request)

    assert request.cancelled
    assert not request.is_answered


# Health


@on_loop
async def test_the_server_is_ready_once_started_and_every_model_is(tmp_path: Path) -> None:
    site, lenient = Site(tmp_path), Site(tmp_path, strict=False)
    write_times(site.models, "good", "2")
    write_times(site.models, "bad", "no number")
    for each in (site, lenient):
        assert not each.engine.is_ready

    failures = await site.engine.start(None)
    await lenient.engine.start(None)

    assert list(failures) == ["bad"]
    assert "load failed for model 'bad': version 1 is at UNAVAILABLE state: ValueError" in failures["bad"].message
    assert await site.answer("good") == [[2, -2]]
    assert (site.engine.is_ready, lenient.engine.is_ready) == (False, True)
    assert site.engine.is_model_ready("good", "")
    assert site.engine.is_model_ready("good", "1")
    assert not site.engine.is_model_ready("good", "2")
    assert not site.engine.is_model_ready("bad", "")
    await site.engine.unload("bad")
    assert site.engine.is_ready


@on_loop
async def test_a_server_without_models_is_ready(tmp_path: Path) -> None:
    site = Site(tmp_path)
    await site.engine.start(None)

    assert site.engine.is_ready
    assert await site.engine.index(ready=False) == []


@on_loop
async def test_a_server_on_its_way_out_answers_what_it_has_and_takes_nothing_new(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_times(site.models, "m", "2")
    await site.engine.start(None)
    accepted = ask(1)
    site.engine.infer(accepted)

    site.engine.stop_accepting()

    assert site.no_answer().code is Code.UNAVAILABLE
    assert "Server exiting" in site.no_answer().message
    assert not site.engine.is_ready
    with pytest.raises(ServeError, match="Server exiting"):
        site.engine.check_running()
    for control in (site.engine.load, site.engine.unload):
        with pytest.raises(ServeError, match="Server exiting"):
            await control("m")
    await answered(accepted)
    assert accepted.tensors["Y"].tolist() == [[2, -2]]


@on_loop
async def test_figures_are_those_of_all_of_a_model_or_of_a_version(tmp_path: Path) -> None:
    site = Site(tmp_path)
    text = "version_policy { all { } }"
    write_times(site.models, "a", "1", text)
    write_times(site.models, "a", "2", text, version=2)
    write_times(site.models, "b", "1")
    await site.engine.start(None)

    def listed(name: str, version: str) -> list[tuple[str, int]]:
        return [(servable.name, servable.version) for servable in site.engine.stats(name, version)]

    assert listed("", "") == [("a", 1), ("a", 2), ("b", 1)]
    assert listed("a", "") == [("a", 1), ("a", 2)]
    assert listed("a", "2") == [("a", 2)]
    for name, version, words in (
        ("x", "", "requested model 'x' is not available"),
        ("b", "2", "requested model version is not available for model 'b'"),
    ):
        with pytest.raises(ServeError, match=words) as caught:
            site.engine.stats(name, version)
        assert caught.value.code is Code.INVALID_ARG


# The repository index


@on_loop
async def test_the_index_lists_what_exists_and_where_it_stands(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_times(site.models, "good", "1", "version_policy { all { } }")
    write_times(site.models, "good", "1", "version_policy { all { } }", version=10)
    write_times(site.models, "good", "1", "version_policy { all { } }", version=9)
    write_times(site.models, "bad", "no number")
    write_times(site.models, "never", "1")
    (site.models / ".git").mkdir()
    await site.engine.start(["good", "bad"])

    assert await site.engine.index(ready=False) == [
        {
            "name": "bad",
            "version": "1",
            "state": "UNAVAILABLE",
            "reason": "ValueError: could not convert string to float: 'no number'",
        },
        {"name": "good", "version": "1", "state": "READY"},
        {"name": "good", "version": "9", "state": "READY"},
        {"name": "good", "version": "10", "state": "READY"},
        {"name": "never"},
    ]
    assert [row["version"] for row in await site.engine.index(ready=True)] == ["1", "9", "10"]
