"""Patterns of header names: RE2's where they can be had, and never one that could take long."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bident.settings.patterns import compile_pattern

NAME = "a" * 63 + "!"
"""As long as a name may be, and no match for most."""


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        ".*",
        "^my-.*",
        "^(x-a|x-b.*|y)$",
        "^x-[a-z0-9]+-id$",
        "(?:x-)?id",
        "(?P<n>x)y",
        "x{2}",
        "x{2,}y",
        "(?i)x",
        "(?-i)x",
        "(?s-i)x",
        r"\.\*\+\(\)",
        "[*+?(){}]",
        "[]a]+",
        r"[\]a]+",
        "x(a|b)(c|d)",
        "(ab)+",
        "a.*b.*c.*",
        "^(a.*b.*c.*|.*d.*e.*|f.*g.*h.*)$",
    ],
)
def test_usable(pattern: str) -> None:
    compile_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "missing )"),
        ("[a", "unterminated"),
        ("*a", "nothing to repeat"),
        (r"\pL", "bad escape"),
        ("(?x)a", "RE2 does not know (?"),
        ("a" + "(" * 5000, ""),
        ("(a)\\1", r"RE2 does not know \1"),
        ("(?=a)", "RE2 does not know (?"),
        ("(?<!a)b", "RE2 does not know (?"),
        ("(?>a)b", ""),
        ("a*+", ""),
        ("[[:alpha:]]", "[:alpha:] is not supported"),
        ("(a+)+", "'+' repeats what varies itself"),
        ("(a|aa)*x", "'*' repeats what varies itself"),
        ("(a?){20}a{20}", "'{20}' repeats what varies itself"),
        ("((a*)b)*", "repeats what varies"),
        ("(?:x(a*)){2,3}", "repeats what varies"),
        ("(a*)?*", ""),
        (".*.*.*.*x", "more than 3 repeats in a row"),
        ("(a*b*)(c*(d*|e))f", "more than 3 repeats in a row"),
    ],
)
def test_unusable(pattern: str, reason: str) -> None:
    with pytest.raises(ValueError, match="Invalid regex pattern") as refused:
        compile_pattern(pattern)
    assert reason in str(refused.value)


@given(st.text(alphabet="ab.*+?|()[]{}2,^$\\-!:", max_size=14))
def test_whatever_is_accepted_is_fast(pattern: str) -> None:
    try:
        compiled = compile_pattern(pattern)
    except ValueError:
        return
    started = time.process_time()
    compiled.search(NAME)
    assert time.process_time() - started < 0.5
