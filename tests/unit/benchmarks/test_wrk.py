"""Reading the figures that ``post.lua`` writes."""

import pytest

from benchmarks.wrk import BadAnswersError, parse

OUTPUT = """Running 2s test @ http://127.0.0.1:21000/v2/models/iris_sklearn/infer
  1 threads and 8 connections
Requests/sec:  41781.24
wrk: requests={requests} duration=2100000 p50=176 p90=285 p99=596 status={status} connect=0 read=0 write=0 timeout=0
"""


def test_figures_are_read_from_the_last_line():
    load = parse(OUTPUT.format(requests=84000, status=0))
    assert (load.requests, load.per_second) == (84000, 40000)
    assert (load.p50_us, load.p90_us, load.p99_us) == (176, 285, 596)


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (OUTPUT.format(requests=84000, status=3), "'status': 3"),
        (OUTPUT.format(requests=0, status=0), "0 answers"),
        ("unable to connect", "reported nothing"),
    ],
)
def test_a_run_with_failures_has_no_figures(output, reason):
    with pytest.raises(BadAnswersError, match=reason):
        parse(output)
