"""The figures of single responses, of failed runs, and the summaries of both kinds of models."""

from __future__ import annotations

import numpy as np

from bident.engine.measures import Measures
from bident.engine.servable import Servable
from bident.engine.stats import MOST_RESPONSES, ModelStats
from bident.errors import Code, ServeError
from tests.unit.engine.engine_fakes import (
    BATCHING,
    INLINE,
    Echo,
    answered,
    ask,
    infer,
    model_config,
    on_loop,
    servable_of,
)
from tests.unit.engine.engine_hands import Hand, Held, running, served

DECOUPLED = "model_transaction_policy { decoupled: true }"
ALL = Measures(histograms=True, quantiles=((0.5, 0.1),))


def measure(servable: Servable) -> ModelStats:
    """Have all there is measured of ``servable``."""
    return ALL.stats(servable.config, servable.stats)


def counted(stats: ModelStats) -> dict[int, dict[str, int]]:
    return {
        index: {name: duration.count for name, duration in vars(figures).items() if duration.count}
        for index, figures in stats.responses.items()
    }


def fail(held: Held, *, final: bool) -> None:
    held.answers.replied(0, {}, error=ServeError(Code.INTERNAL, "no"), final=final)


@on_loop
async def test_each_response_of_a_stream_is_counted_at_its_place() -> None:
    hand = Hand()
    servable = await served(hand, config=model_config(DECOUPLED))
    stats = measure(servable)
    infer(servable, ask(1))
    held = await running(hand)
    held.reply(0, 1, final=False)
    fail(held, final=False)
    held.executed()
    held.end(0)

    part = {"compute_infer": 1, "compute_output": 1}
    assert counted(stats) == {0: {**part, "success": 1}, 1: {**part, "fail": 1}, 2: {"empty_response": 1}}
    assert (stats.success.count, stats.fail.count) == (1, 0)
    assert stats.first_response is not None
    assert stats.first_response.cumulative[-1] == 1
    assert stats.responses[0].success.ns >= stats.responses[0].compute_infer.ns


@on_loop
async def test_streams_side_by_side_are_kept_apart() -> None:
    hand = Hand()
    servable = await served(hand, config=model_config(BATCHING + DECOUPLED))
    infer(servable, ask(1), ask(2))
    held = await running(hand)
    held.reply(0, final=False)
    held.reply(1)
    held.reply(0)
    held.executed()

    assert counted(servable.stats)[0]["success"] == 2
    assert counted(servable.stats)[1]["success"] == 1


@on_loop
async def test_a_stream_without_end_has_figures_of_bounded_size() -> None:
    stats = ModelStats()
    for index in (0, MOST_RESPONSES - 1, MOST_RESPONSES, 10**9):
        stats.response(index).success.add(1, 1)

    assert {index: figures.success.count for index, figures in stats.responses.items()} == {0: 1, MOST_RESPONSES - 1: 3}


@on_loop
async def test_models_that_answer_once_have_no_response_figures() -> None:
    servable = servable_of(model_config(BATCHING + INLINE), Echo())
    request = ask(1)
    infer(servable, request)
    await answered(request)

    assert servable.stats.responses == {}


@on_loop
async def test_a_batch_of_which_each_request_fails_has_run_once() -> None:
    hand = Hand()
    servable = await served(hand)
    infer(servable, ask(1), ask(2))
    held = await running(hand)
    held.executed()
    for index in (0, 1):
        held.answers.replied(index, {}, error=ServeError(Code.INTERNAL, "no"))

    stats = servable.stats
    assert (stats.executions, stats.inferences, stats.fail.count) == (1, 0, 2)
    assert {rows: size.executions for rows, size in stats.batches.items()} == {2: 1}


@on_loop
async def test_a_batch_of_which_some_requests_fail_has_run_once() -> None:
    hand = Hand()
    servable = await served(hand)
    infer(servable, ask(1), ask(2))
    held = await running(hand)
    held.executed()
    fail(held, final=True)
    held.reply(1)

    stats = servable.stats
    assert (stats.executions, stats.inferences, stats.success.count, stats.fail.count) == (1, 1, 1, 1)


@on_loop
async def test_summaries_have_a_value_for_each_request_with_a_result() -> None:
    def refuse_zero(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if (inputs["X"] == 0).any():
            raise ValueError("no")
        return {"Y": inputs["X"]}

    servable = servable_of(model_config(BATCHING + INLINE), Echo(refuse_zero))
    stats = measure(servable)
    good, bad = [ask(1), ask(2)], ask(0)
    infer(servable, *good)
    await answered(*good)
    infer(servable, bad)
    await answered(bad)

    summaries = stats.summaries
    assert summaries is not None
    assert stats.success.count == 2
    for name in ("request", "queue", "compute_input", "compute_infer", "compute_output"):
        assert getattr(summaries, name).count == 2, name
    assert summaries.request.sum >= summaries.compute_infer.sum
