"""Paired rounds: contenders take turns, so that a slow spell of the machine hits them alike."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def interleave(rounds: int, *contenders: Callable[[], T]) -> list[list[T]]:
    """Call the contenders in turn, ``rounds`` times: one list of results for each contender.

    Every contender runs once more before the first round, unrecorded, to be warm.
    """
    for contender in contenders:
        contender()
    results: list[list[T]] = [[] for _ in contenders]
    for _ in range(rounds):
        for contender, recorded in zip(contenders, results, strict=True):
            recorded.append(contender())
    return results


def paired_ratio(ours: Sequence[float], peer: Sequence[float]) -> float:
    """The median over the rounds of ours / peer, each ratio taken within one round."""
    return statistics.median(mine / theirs for mine, theirs in zip(ours, peer, strict=True))
