"""Memory is summed over a process and all it started."""

from benchmarks.processes import total_kilobytes


def test_descendants_count_and_strangers_do_not():
    listing = " 10 1 1000\n 11 10 200\n 12 11 30\n 20 1 5000\n"
    assert total_kilobytes(listing, 10) == 1230
    assert total_kilobytes(listing, 12) == 30
