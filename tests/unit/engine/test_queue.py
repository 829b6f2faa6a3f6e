"""The queue: order, levels, limits, time, and its own account of itself."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bident.engine.queue import RequestQueue
from bident.errors import Code, ServeError
from tests.unit.engine.engine_fakes import Asked, model_config

US = 1000


def queue_of(text: str = "") -> RequestQueue:
    """A queue by the inside of ``dynamic_batching``."""
    return RequestQueue(model_config(f"dynamic_batching {{ {text} }}").dynamic_batching)


def request(name: str, *, priority: int = 0, timeout_us: int = 0, at_us: int = 0) -> Asked:
    made = Asked(request_id=name)
    made.priority = priority
    made.timeout_us = timeout_us
    made.queued_ns = 1 + at_us * US
    return made


def push(queue: RequestQueue, *names: str, priority: int = 0, timeout_us: int = 0, at_us: int = 0) -> None:
    for name in names:
        queue.push(request(name, priority=priority, timeout_us=timeout_us, at_us=at_us))


def names(requests: object) -> str:
    return "".join(waiting.id for waiting in requests)  # type: ignore[attr-defined]


def after_us(microseconds: int) -> int:
    return 1 + microseconds * US


@pytest.mark.parametrize("queue", [RequestQueue(None), queue_of()], ids=["no batcher", "batcher"])
def test_first_in_first_out(queue: RequestQueue) -> None:
    push(queue, *"abcd")

    assert (queue.size, names(queue.in_order()), queue.first().id) == (4, "abcd", "a")
    assert names(queue.take(3)) == "abc"
    assert (queue.size, names(queue.in_order())) == (1, "d")


# Priorities

LEVELS = "priority_levels: 3 default_priority_level: 2"


def test_lower_levels_are_served_first_and_each_in_its_order() -> None:
    queue = queue_of(LEVELS)
    push(queue, "x", "y", priority=3)
    push(queue, "m", priority=2)
    push(queue, "a", "b", priority=1)

    assert queue.first().id == "a"
    assert names(queue.in_order()) == "abmxy"
    assert names(queue.take(4)) == "abmx"


@pytest.mark.parametrize("priority", [0, 4, 2**64 - 1])
def test_a_priority_that_is_no_level_is_the_default_one(priority: int) -> None:
    queue = queue_of(LEVELS)
    push(queue, "z", priority=3)
    push(queue, "d", priority=priority)
    push(queue, "a", priority=1)

    assert names(queue.in_order()) == "adz"


def test_without_levels_priorities_mean_nothing() -> None:
    queue = queue_of()
    push(queue, "a", priority=9)
    push(queue, "b", priority=1)

    assert names(queue.take(2)) == "ab"


def test_each_level_has_its_own_policy_and_others_the_default() -> None:
    queue = queue_of(
        "priority_levels: 2 default_priority_level: 1 default_queue_policy { max_queue_size: 2 }"
        " priority_queue_policy { key: 2 value { max_queue_size: 1 } }"
    )
    push(queue, "a", "b", priority=1)
    push(queue, "x", priority=2)

    for level in (1, 2):
        with pytest.raises(ServeError):
            push(queue, "-", priority=level)
    assert names(queue.in_order()) == "abx"


def test_without_levels_only_the_default_policy_counts() -> None:
    queue = queue_of(
        "default_queue_policy { max_queue_size: 3 } priority_queue_policy { key: 1 value { max_queue_size: 1 } }"
    )

    push(queue, *"abc")

    assert queue.size == 3


# Length


def test_a_full_queue_refuses_and_stays_as_it_was() -> None:
    queue = queue_of("default_queue_policy { max_queue_size: 2 }")
    push(queue, "a", "b")

    with pytest.raises(ServeError, match="Exceeds maximum queue size: 2") as caught:
        push(queue, "c")

    assert caught.value.code is Code.UNAVAILABLE
    assert (queue.size, names(queue.in_order())) == (2, "ab")
    queue.take(1)
    push(queue, "d")
    assert names(queue.in_order()) == "bd"


def test_delayed_requests_count_against_the_limit() -> None:
    queue = queue_of(
        "default_queue_policy { max_queue_size: 2 timeout_action: DELAY default_timeout_microseconds: 10 }"
    )
    push(queue, "a", "b")
    queue.expire(after_us(10))

    with pytest.raises(ServeError, match="Exceeds maximum queue size"):
        push(queue, "c")


# Time

REJECT = "default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 100 %s }"
OVERRIDE = "allow_timeout_override: true"


def test_requests_without_a_limit_never_expire() -> None:
    queue = queue_of()
    push(queue, "a", timeout_us=5)

    assert (queue.deadlines, queue.next_deadline_ns()) == (0, 0)
    assert queue.expire(after_us(10**12)) == []
    assert queue.size == 1


def test_late_requests_are_rejected_the_moment_their_time_is_up() -> None:
    queue = queue_of(REJECT % "")
    push(queue, "a", at_us=0)
    push(queue, "b", at_us=50)

    assert queue.next_deadline_ns() == after_us(100)
    assert queue.expire(after_us(100) - 1) == []
    assert names(queue.expire(after_us(100))) == "a"
    assert (queue.size, queue.deadlines, queue.next_deadline_ns()) == (1, 1, after_us(150))
    assert names(queue.take(1)) == "b"
    assert queue.deadlines == 0


@pytest.mark.parametrize(
    ("allowed", "asked_us", "expires_us"),
    [
        ("", 40, 100),  # not allowed
        (OVERRIDE, 40, 40),
        (OVERRIDE, 400, 100),  # never longer than the policy
        (OVERRIDE, 0, 100),  # not asked for
        (OVERRIDE, 2**64 - 1, 100),
    ],
)
def test_a_request_may_only_shorten_its_time_and_only_if_allowed(allowed: str, asked_us: int, expires_us: int) -> None:
    queue = queue_of(REJECT % allowed)
    push(queue, "a", timeout_us=asked_us)

    assert queue.expire(after_us(expires_us) - 1) == []
    assert names(queue.expire(after_us(expires_us))) == "a"


def test_any_time_is_shorter_than_no_limit() -> None:
    queue = queue_of(f"default_queue_policy {{ {OVERRIDE} }}")
    push(queue, "a", timeout_us=30)
    push(queue, "b")

    assert names(queue.expire(after_us(30))) == "a"
    assert (names(queue.in_order()), queue.deadlines) == ("b", 0)


def test_delayed_requests_step_behind_the_punctual_ones_of_their_level() -> None:
    queue = queue_of(
        "priority_levels: 2 default_priority_level: 1"
        " default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 100 }"
    )
    push(queue, "a", "b", priority=1, at_us=0)
    push(queue, "z", priority=2, at_us=0)
    push(queue, "c", priority=1, at_us=60)

    assert queue.expire(after_us(100)) == []
    push(queue, "d", priority=1, at_us=110)

    assert (queue.size, names(queue.in_order())) == (5, "cdabz")
    assert queue.deadlines == 2
    assert queue.expire(after_us(10**6)) == []
    assert names(queue.take(5)) == "abcdz"
    assert queue.deadlines == 0


# Cancelled requests


def test_requests_of_clients_that_have_gone_are_taken_out() -> None:
    queue = queue_of(REJECT % "")
    asked = [request(name) for name in "abcd"]
    for waiting in asked:
        queue.push(waiting)
    asked[1].cancelled = asked[3].cancelled = True

    assert names(queue.drop_cancelled()) == "bd"
    assert (queue.size, queue.deadlines, names(queue.in_order())) == (2, 2, "ac")
    assert queue.drop_cancelled() == []


# Whatever happens

POLICIES = (
    "",
    "default_queue_policy { max_queue_size: 3 }",
    REJECT % OVERRIDE,
    "default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 100 allow_timeout_override: true }",
    "priority_levels: 3 default_priority_level: 2"
    " default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 50 }"
    " priority_queue_policy { key: 1 value { timeout_action: REJECT default_timeout_microseconds: 20 } }"
    " priority_queue_policy { key: 3 value { max_queue_size: 2 } }",
)


class QueueMachine(RuleBasedStateMachine):
    """Random pushes, takes, expiries and cancels against a plain account of what is in the queue."""

    def __init__(self) -> None:
        super().__init__()
        self.now_us = 0
        self.queue = RequestQueue(None)
        self.inside: list[Asked] = []
        self.count = 0

    @rule(text=st.sampled_from(POLICIES))
    @precondition(lambda self: self.count == 0)
    def choose_policy(self, text: str) -> None:
        self.queue = queue_of(text)

    @rule(priority=st.integers(0, 4), timeout_us=st.sampled_from([0, 10, 1000]))
    def push(self, priority: int, timeout_us: int) -> None:
        self.count += 1
        made = request(str(self.count), priority=priority, timeout_us=timeout_us, at_us=self.now_us)
        try:
            self.queue.push(made)
        except ServeError:
            return
        self.inside.append(made)

    @rule(count=st.integers(1, 4))
    @precondition(lambda self: self.inside)
    def take(self, count: int) -> None:
        expected = list(self.queue.in_order())[:count]
        assert self.queue.first() is expected[0]
        taken = self.queue.take(len(expected))
        assert taken == expected
        self._gone(taken)

    @rule(microseconds=st.integers(0, 60))
    def time_passes(self, microseconds: int) -> None:
        self.now_us += microseconds
        now_ns = after_us(self.now_us)
        rejected = self.queue.expire(now_ns)
        assert all(0 < late.deadline_ns <= now_ns for late in rejected)
        self._gone(rejected)
        assert not 0 < self.queue.next_deadline_ns() <= now_ns

    @rule(data=st.data())
    @precondition(lambda self: self.inside)
    def cancel(self, data: st.DataObject) -> None:
        gone = data.draw(st.sampled_from(self.inside))
        gone.cancelled = True
        assert self.queue.drop_cancelled() == [gone]
        self._gone([gone])

    @invariant()
    def the_account_is_right(self) -> None:
        waiting = list(self.queue.in_order())
        assert self.queue.size == len(waiting) == len(self.inside)
        assert {id(each) for each in waiting} == {id(each) for each in self.inside}
        assert (self.queue.deadlines > 0) == (self.queue.next_deadline_ns() > 0)
        assert 0 <= self.queue.deadlines <= self.queue.size

    def _gone(self, requests: list[Asked]) -> None:
        for each in requests:
            self.inside.remove(each)


QueueMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestQueueMachine = QueueMachine.TestCase
