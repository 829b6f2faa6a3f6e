"""Contenders take turns, after one unrecorded turn each."""

from benchmarks.rounds import interleave, paired_ratio


def test_turns_alternate_and_the_first_is_not_recorded():
    order = []

    def contender(name):
        def turn():
            order.append(name)
            return len(order)

        return turn

    ours, peer = interleave(2, contender("ours"), contender("peer"))
    assert order == ["ours", "peer"] * 3
    assert (ours, peer) == ([3, 5], [4, 6])


def test_ratio_pairs_the_rounds():
    assert paired_ratio([10, 1, 8], [5, 1, 2]) == 2
