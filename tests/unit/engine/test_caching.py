"""Models with a response cache: what runs, what is answered from memory, and what counts as what."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from bident.engine.cache import ResponseCache
from bident.engine.servable import LoadedModel, Servable
from bident.engine.stats import ModelStats
from bident.errors import Code
from bident.wire.infer import InferResponse, Outcome
from tests.unit.engine import engine_fakes
from tests.unit.engine.engine_fakes import (
    BATCHING,
    INLINE,
    THREAD,
    Asked,
    Echo,
    NoModels,
    answer_of,
    answered,
    ask,
    busy,
    clients_of,
    failures,
    infer,
    model_config,
    on_loop,
    tensor,
    turns,
)
from tests.unit.engine.ensemble_stage import Stage, reached, step, values

CACHED = "response_cache { enable: true }"
LARGE = 1 << 20


def cached(instance: Echo, text: str = BATCHING + THREAD, *, cache: ResponseCache | None = None) -> Servable:
    loaded = LoadedModel(model_config(f"{CACHED} {text}"), {}, {1: [instance]})
    loop = asyncio.get_running_loop()
    servable = Servable(loaded, 1, ModelStats(), loop, clients_of(9), NoModels(), cache=cache or ResponseCache(LARGE))
    engine_fakes._in_service.append(servable)
    return servable


async def ask_once(servable: Servable, value: float, rows: int = 1) -> Asked:
    request = ask(value, rows)
    infer(servable, request)
    await answered(request)
    return request


def counts(servable: Servable) -> dict[str, int]:
    stats = servable.stats
    names = ("success", "fail", "queue", "compute_infer", "cache_hit", "cache_miss")
    figures = {name: getattr(stats, name).count for name in names}
    return {**figures, "inferences": stats.inferences, "executions": stats.executions}


@on_loop
async def test_the_second_time_the_model_does_not_run() -> None:
    instance = Echo()
    servable = cached(instance)

    first = await ask_once(servable, 1, rows=2)
    again = ask(1, rows=2, request_id="another")
    infer(servable, again)

    assert again.is_answered, "at once"
    assert again.tensors["Y"].tolist() == first.tensors["Y"].tolist() == answer_of(1, 2)
    assert (again.response.id, again.response.model_version) == ("another", "1")
    assert instance.rows == [2]


@on_loop
async def test_hits_and_misses_count_as_tritons_do() -> None:
    servable = cached(Echo())
    for value in (1, 1, 3, 1):
        await ask_once(servable, value)
    await ask_once(servable, 1, rows=2)
    await ask_once(servable, 1, rows=2)

    # As a real Triton 2.51 counted for the same six requests.
    assert counts(servable) == {
        "success": 6,
        "fail": 0,
        "queue": 6,
        "compute_infer": 3,
        "cache_hit": 3,
        "cache_miss": 3,
        "inferences": 4,
        "executions": 3,
    }
    stats = servable.stats
    assert 0 < stats.cache_hit.ns < stats.success.ns
    assert 0 < stats.cache_miss.ns < stats.success.ns


@on_loop
async def test_a_hit_is_not_an_inference_of_now() -> None:
    servable = cached(Echo())
    await ask_once(servable, 1)
    servable.stats.last_inference_ms = 0

    await ask_once(servable, 1)

    assert servable.stats.last_inference_ms == 0


@on_loop
async def test_failures_are_not_kept_and_are_neither_hits_nor_misses() -> None:
    def fail(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if inputs["X"][0, 0] == 13:
            raise ValueError("unlucky")
        return {"Y": inputs["X"]}

    instance = Echo(fail)
    servable = cached(instance)

    for _ in range(2):
        assert "unlucky" in (await ask_once(servable, 13)).error.message

    assert instance.rows == [1, 1]
    assert counts(servable)["fail"] == 2
    assert counts(servable)["cache_miss"] == counts(servable)["cache_hit"] == 0


@on_loop
async def test_requests_of_one_batch_are_kept_each_for_itself() -> None:
    instance = Echo()
    servable = cached(instance)
    requests = [ask(value) for value in range(5)]
    infer(servable, *requests)
    await answered(*requests)
    assert instance.rows == [5]

    again = [ask(value) for value in range(5)]
    infer(servable, *again)

    assert [request.tensors["Y"].tolist() for request in again] == [answer_of(value) for value in range(5)]


@on_loop
async def test_a_known_answer_does_not_wait_while_the_model_is_busy() -> None:
    instance = Echo()
    servable = cached(instance)
    await ask_once(servable, 1)
    blocker = await busy(servable, instance)

    again = ask(1)
    infer(servable, again)

    assert again.is_answered
    instance.release()
    await answered(blocker)


@on_loop
async def test_the_same_question_asked_twice_at_once_runs_and_is_kept_once() -> None:
    instance, cache = Echo(), ResponseCache(LARGE)
    servable = cached(instance, cache=cache)
    both = [ask(1), ask(1)]
    infer(servable, *both)
    await answered(*both)

    assert cache.count == 1
    assert counts(servable)["cache_miss"] == 2


@on_loop
async def test_versions_and_loads_do_not_see_each_others_answers() -> None:
    cache = ResponseCache(LARGE)
    old, new = Echo(), Echo()
    before = cached(old, cache=cache)
    await ask_once(before, 1)
    after = cached(new, cache=cache)

    await ask_once(after, 1)
    assert new.rows == [1]
    assert cache.count == 2
    before.retire(lambda: None)
    await turns()

    assert cache.count == 1, "what was unloaded has left nothing behind"


@on_loop
async def test_an_ensemble_forgets_what_members_answered_that_have_been_replaced() -> None:
    cache = ResponseCache(LARGE)
    stage = Stage()
    stage.plus("plus", 1)
    stage.ensemble(step("plus", "X=X", "Y=Y"), name="inner")
    outer = stage.ensemble(step("inner", "X=X", "Y=Y"), name="outer", cache=cache)
    assert values(await ask_once(outer, 1)) == [[2, 0]]
    assert values(await ask_once(outer, 1)) == [[2, 0]]
    assert counts(outer)["cache_hit"] == 1

    stage.plus("plus", 10)

    assert values(await ask_once(outer, 1)) == [[11, 9]]
    assert values(await ask_once(outer, 1)) == [[11, 9]]
    assert counts(outer)["cache_hit"] == 2
    assert cache.count == 1


@on_loop
async def test_an_answer_of_members_that_have_been_replaced_meanwhile_is_not_kept() -> None:
    cache = ResponseCache(LARGE)
    stage = Stage()
    slow = stage.open("slow")
    outer = stage.ensemble(step("slow", "X=X", "Y=Y"), cache=cache)
    old, new = ask(1), ask(2)
    infer(outer, old)
    await reached(slow)

    quick = stage.plus("slow", 10)
    infer(outer, new)
    slow.say([2, 0])
    await answered(old, new)

    assert values(old) == [[2, 0]]
    assert cache.count == 1
    assert values(await ask_once(outer, 1)) == [[11, 9]]
    assert len(quick.batches) == 2


@on_loop
async def test_a_number_that_does_not_fit_costs_only_its_request() -> None:
    instance = Echo()
    servable = cached(instance)
    wrong, right = Asked(tensor("X", [1e300, 0.0], (1, 2))), ask(1)

    infer(servable, wrong, right)
    await answered(wrong, right)

    assert wrong.error.code is Code.INVALID_ARG
    assert right.tensors["Y"].tolist() == answer_of(1)


@on_loop
async def test_an_answer_that_cannot_be_written_counts_as_failed_also_from_the_cache() -> None:
    servable = cached(Echo(), BATCHING + INLINE)
    await ask_once(servable, 1)
    before = counts(servable)

    def refuse(response: InferResponse) -> Outcome:
        raise ValueError("no such form")

    request = ask(1)
    request.reply = refuse  # type: ignore[assignment]
    infer(servable, request)

    assert failures(servable) == {"OTHER": 1}
    assert counts(servable) == {**before, "fail": 1}


@on_loop
async def test_an_answer_that_is_written_later_counts_when_it_is() -> None:
    servable = cached(Echo())
    await ask_once(servable, 1)
    responses: list[InferResponse] = []

    def later(response: InferResponse) -> Outcome:
        responses.append(response)
        return Outcome.LATER

    request = ask(1)
    request.reply = later  # type: ignore[assignment]
    infer(servable, request)
    assert counts(servable)["cache_hit"] == 0

    settled = responses[0].settled
    assert settled is not None
    settled(True)
    assert counts(servable)["cache_hit"] == 1


@on_loop
async def test_without_a_cache_in_the_server_the_model_is_served_and_its_owner_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    instance = Echo()
    loaded = LoadedModel(model_config(f"{CACHED} {BATCHING} {THREAD}"), {}, {1: [instance]})
    servable = Servable(loaded, 1, ModelStats(), asyncio.get_running_loop(), clients_of(9), NoModels())
    engine_fakes._in_service.append(servable)

    await ask_once(servable, 1)
    await ask_once(servable, 1)

    assert instance.rows == [1, 1]
    assert servable.caching is None
    assert "--cache-config local,size=" in caplog.text


@on_loop
async def test_the_cache_is_not_used_by_models_that_do_not_ask_for_it() -> None:
    cache, instance = ResponseCache(LARGE), Echo()
    loaded = LoadedModel(model_config(BATCHING + THREAD), {}, {1: [instance]})
    servable = Servable(loaded, 1, ModelStats(), asyncio.get_running_loop(), clients_of(9), NoModels(), cache=cache)
    engine_fakes._in_service.append(servable)

    await ask_once(servable, 1)
    await ask_once(servable, 1)

    assert instance.rows == [1, 1]
    assert cache.count == 0
