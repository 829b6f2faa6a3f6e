"""How much a model inside the server may say before the event loop has heard it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from bident.backends.python.inside_unheard import MOST_AT_ONCE, MOST_WAITING, MOST_WAITING_BYTES, Unheard
from bident.backends.python.messages import InferCall, InferDropped, Reply, Request

NOTHING = InferDropped(1)


def reply(size: int) -> Reply:
    return Reply(1, 0, {"OUT": np.zeros(size, np.uint8)}, final=False)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def waiting(unheard: Unheard) -> threading.Thread:
    """A thread that waits for room, and has begun to."""
    thread = threading.Thread(target=unheard.wait_for_room, daemon=True)
    thread.start()
    until(lambda: bool(unheard._waiting) or not thread.is_alive())
    return thread


def test_events_are_heard_in_order_and_a_bounded_number_at_once() -> None:
    unheard = Unheard()
    said = [InferDropped(number) for number in range(100)]
    for event in said:
        unheard.put([event])
    heard = [unheard.take() for _ in range(5)]
    assert [len(part) for part in heard] == [MOST_AT_ONCE] * 3 + [100 - 3 * MOST_AT_ONCE, 0]
    assert [event for part in heard for event in part] == said


def test_what_is_said_together_is_heard_together() -> None:
    unheard = Unheard()
    unheard.put([NOTHING] * 10 * MOST_AT_ONCE)
    unheard.put([NOTHING])
    assert [len(unheard.take()), len(unheard.take())] == [10 * MOST_AT_ONCE, 1]


def test_who_says_too_much_waits_until_half_of_it_has_been_heard() -> None:
    unheard = Unheard()
    for _ in range(MOST_WAITING):
        unheard.put([NOTHING])
    unheard.wait_for_room()
    unheard.put([NOTHING])
    thread = waiting(unheard)
    while len(unheard) > MOST_WAITING // 2 + MOST_AT_ONCE:
        unheard.take()
        assert thread.is_alive()
    unheard.take()
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    "event",
    [
        reply(MOST_WAITING_BYTES + 1),
        Reply(1, 0, {"OUT": np.array([b"x" * (MOST_WAITING_BYTES + 1)], object)}),
        InferCall(1, "m", -1, False, Request(inputs={"IN": np.zeros(MOST_WAITING_BYTES + 1, np.uint8)})),
    ],
    ids=["numbers", "strings", "a question"],
)
def test_who_says_too_much_in_bytes_waits_too(event: Reply | InferCall) -> None:
    unheard = Unheard()
    unheard.wait_for_room()
    unheard.put([event])
    thread = waiting(unheard)
    assert thread.is_alive()
    assert unheard.take() == [event]
    thread.join(10)
    assert not thread.is_alive()
    assert unheard._bytes == 0


def test_nobody_waits_for_one_that_hears_no_more() -> None:
    unheard = Unheard()
    unheard.put([reply(MOST_WAITING_BYTES + 1)])
    threads = [waiting(unheard) for _ in range(3)]
    unheard.close()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    unheard.put([NOTHING])
    unheard.wait_for_room()
    assert not unheard
