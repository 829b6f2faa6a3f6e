"""Reading the figures that h2load prints, and what it is given to send."""

import pytest

from benchmarks.h2load import BadAnswersError, framed, parse

OUTPUT = """
finished in 2.00s, {rate} req/s, 4.83MB/s
requests: {done} total, 44505 started, {done} done, {succeeded} succeeded, {failed} failed, 0 errored, 0 timeout
status codes: {ok} 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 9.66MB (10133228) total, 4.15MB (4355218) headers (space savings 45.00%), 3.90MB (4088572) data
"""
GOOD = {"rate": "44441.50", "done": 88883, "succeeded": 88883, "failed": 0, "ok": 88883}


def test_figures_are_read():
    load = parse(OUTPUT.format(**GOOD))
    assert (load.requests, load.per_second) == (88883, 44441.5)


@pytest.mark.parametrize(
    "changed",
    [
        {"failed": 3},
        {"ok": 88000},
        {"done": 0, "succeeded": 0, "ok": 0},
    ],
)
def test_a_run_with_failures_has_no_figures(changed):
    with pytest.raises(BadAnswersError):
        parse(OUTPUT.format(**GOOD | changed))


def test_no_figures_at_all_are_an_error():
    with pytest.raises(BadAnswersError, match="reported nothing"):
        parse("Could not connect to 127.0.0.1")


def test_a_message_is_framed_with_its_length():
    assert framed(b"abc") == b"\x00\x00\x00\x00\x03abc"
