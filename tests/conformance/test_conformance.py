"""Bident answers as a real Triton does, over HTTP and gRPC, or ``known_differences`` says where not and why.

Every case asks both servers the same, step by step. ``make triton`` makes the judge's environment; where it is not
there yet, the first test makes it.
"""

from __future__ import annotations

import pytest
from judged_case import Case
from judged_cases import CASES
from judged_servers import Court
from known_differences import DIFFERENCES, Difference, explained


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_bident_answers_as_triton(court: Court, case: Case) -> None:
    found = court.compare(case)
    unexplained = [mismatch for mismatch in found if not explained(case.id, mismatch)]
    assert not unexplained, "\n".join(map(str, unexplained))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_bident_answers_as_triton_with_compat(court: Court, case: Case) -> None:
    found = court.compare(case, compatible=True)
    unexplained = [mismatch for mismatch in found if not explained(case.id, mismatch, compatible=True)]
    assert not unexplained, "\n".join(map(str, unexplained))


def test_there_are_enough_cases() -> None:
    assert sum(len(case.steps) for case in CASES) >= 1500


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: difference.row)
def test_every_known_difference_is_there(court: Court, difference: Difference) -> None:
    hit = any(difference.matches(case.id, mismatch) for case in CASES for mismatch in court.compare(case))
    assert hit, f"no case differs in this way any more: {difference}"
