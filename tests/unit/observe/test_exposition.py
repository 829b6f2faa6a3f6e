"""Lines of the Prometheus text format."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from bident.observe.metrics import CONTENT_TYPE, Family, escape, render

REQUESTS = Family("nv_requests", "counter", "Requests so far")


def test_a_family_is_described_once_and_then_sampled() -> None:
    text = render(REQUESTS, [({"model": "m", "version": "1"}, 3), ({"version": "2", "model": "m"}, 0)])

    assert text == (
        "# HELP nv_requests Requests so far\n"
        "# TYPE nv_requests counter\n"
        'nv_requests{model="m",version="1"} 3\n'
        'nv_requests{model="m",version="2"} 0\n'
    )


def test_a_family_without_samples_is_still_described() -> None:
    assert render(REQUESTS, []) == "# HELP nv_requests Requests so far\n# TYPE nv_requests counter\n"


def test_a_sample_without_labels_has_no_braces() -> None:
    assert render(REQUESTS, [({}, 7)]).splitlines()[-1] == "nv_requests 7"


def test_large_counters_keep_every_digit() -> None:
    assert render(REQUESTS, [({}, 2**63 + 1)]).splitlines()[-1] == "nv_requests 9223372036854775809"


def test_fractions_are_written_exactly() -> None:
    line = render(Family("g", "gauge", "x"), [({}, 0.1)]).splitlines()[-1]

    assert line == "g 0.1"
    assert float(render(Family("g", "gauge", "x"), [({}, 1e-12)]).split()[-1]) == 1e-12


def test_the_content_type_names_its_encoding() -> None:
    assert CONTENT_TYPE == b"text/plain; charset=utf-8"


def test_escaping() -> None:
    assert escape('a"b\\c\nd') == 'a\\"b\\\\c\\nd'


@given(st.text(max_size=20))
def test_any_label_stays_on_its_line_and_can_be_read_back(label: str) -> None:
    line = render(REQUESTS, [({"model": label}, 1)]).split("\n")[2]
    match = re.fullmatch(r'nv_requests\{model="((?:[^"\\\n]|\\["\\n])*)"\} 1', line)

    assert match is not None
    assert re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], match[1]) == label
