"""The rate limiter alone: who may run when."""

from __future__ import annotations

from functools import partial

import pytest

from bident.engine.rate import RateLimiter, Turn
from bident.errors import ConfigError
from bident.settings.values import RateLimitResource
from tests.unit.engine.engine_fakes import model_config


def needing(*resources: tuple[str, int] | tuple[str, int, bool], priority: int = 0, count: int = 1) -> str:
    """An instance group that takes these resources (name, count, and whether that is for all devices)."""
    told = " ".join(
        f'resources {{ name: "{name}" count: {amount} global: {str(bool(rest and rest[0])).lower()} }}'
        for name, amount, *rest in resources
    )
    return f"instance_group {{ kind: KIND_CPU count: {count} rate_limiter {{ {told} priority: {priority} }} }}"


def enlisted(limiter: RateLimiter, *groups: str, name: str = "m") -> list[Turn]:
    return limiter.enlist(model_config(" ".join(groups), name=name))


class Log(list[str]):
    """Who has run, in order."""

    def take(self, turn: Turn, name: str) -> None:
        def run() -> None:
            turn.executions += 1
            self.append(name)

        turn.take(run)


# Resources


def test_an_instance_waits_until_what_it_needs_is_given_back() -> None:
    limiter = RateLimiter([RateLimitResource("R", 3, None)])
    first, second = enlisted(limiter, needing(("R", 2), count=2))
    log = Log()

    log.take(first, "first")
    log.take(second, "second")
    assert log == ["first"]
    first.give_back()

    assert log == ["first", "second"]


def test_without_limits_there_is_as_much_of_a_resource_as_the_neediest_asks_for() -> None:
    limiter = RateLimiter()
    (large,) = enlisted(limiter, needing(("R", 4)), name="large")
    small, other = enlisted(limiter, needing(("R", 2), count=2), name="small")
    log = Log()

    log.take(small, "small")
    log.take(other, "other")
    log.take(large, "large")
    assert log == ["small", "other"]

    small.give_back()
    assert log == ["small", "other"], "the larger one needs all of it"
    other.give_back()
    assert log == ["small", "other", "large"]


def test_instances_that_need_nothing_wait_for_nobody() -> None:
    limiter = RateLimiter()
    (holder, waiting) = enlisted(limiter, needing(("R", 1), count=2))
    (free,) = enlisted(limiter, needing(), name="free")
    log = Log()

    log.take(holder, "holder")
    log.take(waiting, "waiting")
    log.take(free, "free")

    assert log == ["holder", "free"]


def test_what_needs_much_is_not_starved_by_those_that_need_little() -> None:
    limiter = RateLimiter()
    (large,) = enlisted(limiter, needing(("R", 4)), name="large")
    little = enlisted(limiter, needing(("R", 1), count=3), name="little")
    log = Log()

    log.take(little[0], "a")
    little[1].executions = little[2].executions = 1  # the large one has run less often: it is its turn
    log.take(large, "large")
    log.take(little[1], "b")
    log.take(little[2], "c")
    assert log == ["a"], "b and c would fit, but then the large one would wait for ever"
    little[0].give_back()

    assert log == ["a", "large"]


# Order


def test_the_least_executed_instance_goes_first_and_a_greater_priority_counts_as_more_executions() -> None:
    limiter = RateLimiter()
    (holder,) = enlisted(limiter, needing(("R", 1)), name="holder")
    (often,) = enlisted(limiter, needing(("R", 1)), name="often")
    (seldom,) = enlisted(limiter, needing(("R", 1)), name="seldom")
    (low,) = enlisted(limiter, needing(("R", 1), priority=10), name="low")
    often.executions, seldom.executions, low.executions = 5, 3, 1
    log = Log()

    log.take(holder, "holder")
    for name, turn in (("low", low), ("often", often), ("seldom", seldom)):
        log.take(turn, name)
    for turn in (holder, seldom, often, low):
        turn.give_back()

    assert log == ["holder", "seldom", "often", "low"]


def test_runs_that_end_at_once_do_not_pile_up_on_the_stack() -> None:
    limiter = RateLimiter()
    turns = enlisted(limiter, needing(("R", 1), count=900))
    ran: list[int] = []

    def run(index: int) -> None:
        ran.append(index)
        turns[index].give_back()

    turns[0].take(lambda: None)
    for index in range(1, 900):
        turns[index].take(partial(run, index))
    turns[0].give_back()

    assert sorted(ran) == list(range(1, 900))


# Instances that call others


def test_an_instance_that_waits_for_another_model_lends_what_it_holds() -> None:
    limiter = RateLimiter()
    (caller,) = enlisted(limiter, needing(("R", 1)), name="caller")
    (called,) = enlisted(limiter, needing(("R", 1)), name="called")
    log = Log()
    waits = False
    caller.lends = lambda: waits

    log.take(caller, "caller")
    log.take(called, "called")
    assert log == ["caller"]
    waits = True
    caller.look()

    assert log == ["caller", "called"]


# Loads and unloads


@pytest.mark.parametrize(
    ("given", "resource", "limit"),
    [
        (RateLimitResource("R", 3, None), ("R", 4), 3),
        (RateLimitResource("R", 3, None), ("R", 4, True), 3),
        (RateLimitResource("R", 5, 7), ("R", 4), 0),
        (RateLimitResource("Q", 5, None), ("R", 4), 0),
        (RateLimitResource("r", 5, None), ("R", 4), 0),
    ],
)
def test_who_needs_more_than_there_is_is_not_loaded(
    given: RateLimitResource, resource: tuple[str, int], limit: int
) -> None:
    limiter = RateLimiter([given])

    with pytest.raises(ConfigError) as refused:
        enlisted(limiter, needing(resource))

    assert refused.value.message.startswith(
        f'Resource count for "R" is limited to {limit} which will prevent scheduling of one or more model instances, '
        "the minimum required count is 4; start the server with --rate-limit-resource=R:4"
    )
    assert enlisted(limiter, needing()), "it has left nothing behind"


@pytest.mark.parametrize(
    ("given", "resource"),
    [
        (RateLimitResource("R", 5, 7), ("R", 4, True)),
        (RateLimitResource("R", 5, 0), ("R", 4)),
        (RateLimitResource("R", 4, None), ("R", 4)),
    ],
)
def test_what_is_enough_is_loaded(given: RateLimitResource, resource: tuple[str, int]) -> None:
    assert enlisted(RateLimiter([given]), needing(resource))


def test_a_resource_is_either_global_or_of_a_device() -> None:
    limiter = RateLimiter()
    enlisted(limiter, needing(("R", 1, True)), name="a")

    with pytest.raises(ConfigError) as refused:
        enlisted(limiter, needing(("R", 1)), name="b")

    assert refused.value.message.startswith(
        'Resource "R" is present as both global and device-specific resource in the model configuration: '
        "models 'a' and 'b' declare it"
    )


def test_what_is_unloaded_gives_back_what_it_holds_and_its_claims() -> None:
    limiter = RateLimiter()
    large = enlisted(limiter, needing(("R", 4)), name="large")
    small = enlisted(limiter, needing(("R", 2), count=2), name="small")
    log = Log()
    log.take(large[0], "large")
    log.take(small[0], "a")
    log.take(small[1], "b")
    assert log == ["large"]

    limiter.dismiss(large)

    assert log == ["large", "a"], "now there is only as much as the small one needs"
    assert not small[1].is_free


def test_one_that_waits_can_be_dismissed() -> None:
    limiter = RateLimiter()
    holder, waiting = enlisted(limiter, needing(("R", 1), count=2))
    log = Log()
    log.take(holder, "holder")
    log.take(waiting, "waiting")

    limiter.dismiss([waiting])
    holder.give_back()

    assert log == ["holder"]


def test_whether_an_instance_could_run_now() -> None:
    limiter = RateLimiter()
    first, second = enlisted(limiter, needing(("R", 1), count=2))
    log = Log()
    assert first.is_free

    log.take(first, "first")
    assert not second.is_free
    log.take(second, "second")
    first.give_back()
    second.give_back()

    assert first.is_free
