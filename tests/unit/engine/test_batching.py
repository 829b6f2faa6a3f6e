"""Which waiting requests run together."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bident.engine.batching import BatchPolicy, Plan
from tests.unit.engine.engine_fakes import Asked, model_config


def waiting(*sizes: int, signatures: str = "") -> deque[Asked]:
    """Requests of these sizes; ``signatures`` has one letter for each."""
    queue: deque[Asked] = deque()
    for index, size in enumerate(sizes):
        request = Asked()
        request.batch_size = size
        request.signature = signatures[index] if signatures else None
        queue.append(request)
    return queue


def policy(*preferred: int, batch: int = 8, delay_us: int = 0) -> BatchPolicy:
    sizes = f"preferred_batch_size: {list(preferred)}" if preferred else ""
    text = f"dynamic_batching {{ {sizes} max_queue_delay_microseconds: {delay_us} }}"
    return BatchPolicy(model_config(text, batch=batch))


def batches(chosen: BatchPolicy, queue: deque[Asked]) -> list[int]:
    """The rows of every batch that empties ``queue``."""
    rows = []
    while queue:
        plan = chosen.plan(queue)
        for _ in range(plan.take):
            queue.popleft()
        rows.append(plan.rows)
    return rows


def test_one_request_is_a_batch_that_could_grow() -> None:
    assert policy().plan(waiting(1)) == Plan(take=1, rows=1, could_grow=True)


def test_everything_that_fits_runs_together() -> None:
    assert policy().plan(waiting(1, 2, 1)) == Plan(take=3, rows=4, could_grow=True)


def test_a_full_batch_cannot_grow() -> None:
    assert policy().plan(waiting(3, 5, 1)) == Plan(take=2, rows=8, could_grow=False)


def test_three_requests_of_five_rows_are_three_calls_when_eight_is_the_most() -> None:
    queue = waiting(5, 5, 5)

    assert policy().plan(queue) == Plan(take=1, rows=5, could_grow=False)
    assert batches(policy(), queue) == [5, 5, 5]


def test_a_request_that_does_not_fit_is_not_overtaken() -> None:
    queue = waiting(6, 4, 1, 1)

    assert batches(policy(), queue) == [6, 6]


def test_a_request_of_the_most_rows_runs_alone() -> None:
    assert batches(policy(), waiting(8, 1, 8)) == [8, 1, 8]


@pytest.mark.parametrize(
    ("preferred", "sizes", "expected"),
    [
        ([4], [1] * 3, Plan(3, 3, True)),  # not reached: whatever there is, and it may grow
        ([4], [1] * 4, Plan(4, 4, False)),
        ([4], [1] * 6, Plan(4, 4, False)),
        ([2, 8], [1] * 5, Plan(2, 2, False)),  # the larger one is out of reach
        ([2, 4, 8], [1] * 7, Plan(4, 4, False)),
        ([2, 4, 8], [1] * 8, Plan(8, 8, False)),
        ([4], [3, 3], Plan(2, 6, False)),  # passed by, never reached: still at most the maximum
        ([4], [3, 6], Plan(1, 3, False)),
        ([4, 6], [3, 3, 3], Plan(2, 6, False)),
    ],
)
def test_preferred_sizes(preferred: list[int], sizes: list[int], expected: Plan) -> None:
    assert policy(*preferred).plan(waiting(*sizes)) == expected


def test_requests_of_unlike_shapes_never_mix_and_keep_their_order() -> None:
    queue = waiting(1, 1, 1, 1, 1, signatures="AABBA")

    assert policy().plan(queue) == Plan(take=2, rows=2, could_grow=False)
    assert batches(policy(), queue) == [2, 2, 1]


def test_equal_signatures_are_alike_though_they_are_different_objects() -> None:
    queue = waiting(1, 1)
    for request in queue:
        request.signature = (("X", tuple(size for size in (1, 2))),)

    assert policy().plan(queue).take == 2


@pytest.mark.parametrize(
    ("text", "batch"),
    [("", 8), ("dynamic_batching { max_queue_delay_microseconds: 5000 }", 1), ("", 0)],
    ids=["no batcher", "batches of one", "no batch dimension"],
)
def test_models_that_do_not_merge_run_one_request_at_a_time(text: str, batch: int) -> None:
    chosen = BatchPolicy(model_config(text, batch=batch))

    assert not chosen.merges
    assert chosen.plan(waiting(1, 1, 1)) == Plan(take=1, rows=1, could_grow=False)
    assert chosen.plan(waiting(1)) == Plan(take=1, rows=1, could_grow=False)


def test_without_a_batcher_a_request_keeps_its_own_rows() -> None:
    assert BatchPolicy(model_config("")).plan(waiting(6, 1)) == Plan(take=1, rows=6, could_grow=False)


def test_delays_are_read_in_microseconds() -> None:
    assert policy(delay_us=1500).delay_ns == 1_500_000
    assert BatchPolicy(model_config("")).delay_ns == 0


@given(
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=30),
    letters=st.lists(st.sampled_from("AB"), min_size=30, max_size=30),
    preferred=st.sets(st.integers(1, 8), max_size=3),
)
def test_any_queue_is_emptied_in_order_by_batches_that_keep_the_rules(
    sizes: list[int], letters: list[str], preferred: set[int]
) -> None:
    chosen = policy(*sorted(preferred))
    queue = waiting(*sizes, signatures="".join(letters))
    while queue:
        plan = chosen.plan(queue)

        assert 1 <= plan.take <= len(queue)
        taken = [queue.popleft() for _ in range(plan.take)]
        assert plan.rows == sum(request.batch_size for request in taken) <= 8
        assert len({request.signature for request in taken}) == 1
        if queue and plan.could_grow:
            pytest.fail("a batch is said to be able to grow although a request that waits was left out")
        if queue and plan.rows not in preferred:
            # Nothing that would have fitted was left out, unless the largest preferred size was reached.
            left = queue[0]
            fits = plan.rows + left.batch_size <= 8 and left.signature == taken[0].signature
            assert not fits or plan.rows >= max(preferred, default=8)
