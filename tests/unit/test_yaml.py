"""What is written as YAML is read back as what it was, by PyYAML."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bident.yaml import to_yaml

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.text("ab :#-'\"\n\t{}", max_size=12)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4))


@given(VALUES)
def test_reads_back_as_it_was(value: Any) -> None:
    assert yaml.safe_load(to_yaml(value)) == value


def test_looks_as_people_write_it() -> None:
    value = {"models": [{"name": "a:latest", "tags": ["x", "y"]}, {"name": "b", "more": {}}], "port": 4000, "on": True}
    assert to_yaml(value) == (
        "models:\n"
        '  - name: "a:latest"\n'
        "    tags:\n"
        '      - "x"\n'
        '      - "y"\n'
        '  - name: "b"\n'
        "    more: {}\n"
        "port: 4000\n"
        "'on': true\n"
    )


def test_texts_of_several_lines_stand_as_they_are() -> None:
    assert to_yaml({"node": {"code": "def f():\n    pass\n\nf()\n", "end": "x\ny"}}) == (
        "node:\n  code: |\n    def f():\n        pass\n\n    f()\n  end: |-\n    x\n    y\n"
    )


def test_refuses_what_yaml_has_no_place_for() -> None:
    with pytest.raises(yaml.YAMLError):
        to_yaml({"path": object()})
