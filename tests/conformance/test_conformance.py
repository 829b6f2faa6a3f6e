"""Bident answers as a real Triton does, over HTTP and gRPC, or ``known_differences`` says where not and why.

Every case asks the judge and Bident the same, step by step, Bident also with --triton-compat. ``make triton`` makes
the judge's environment; where it is not there yet, the first test makes it.
"""

from __future__ import annotations

import pytest
from cases_without_judge import FATAL
from judged_case import Case
from judged_cases import CASES
from judged_servers import Court
from known_differences import DIFFERENCES, SWITCHED, Difference, explained, rows

ENOUGH = 1500

pytestmark = pytest.mark.timeout(1800)  # the first test may have to install the judge; every question has a deadline


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_bident_answers_as_triton(court: Court, case: Case) -> None:
    unexplained = [str(found) for found in court.compare(case) if not explained(case.id, found)]
    assert not unexplained, "\n".join(unexplained)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_bident_answers_as_triton_with_compat(court: Court, case: Case) -> None:
    found = court.compare(case, compatible=True)
    unexplained = [str(one) for one in found if not explained(case.id, one, compatible=True)]
    assert not unexplained, "\n".join(unexplained)


def test_there_are_enough_cases() -> None:
    for door in ("http ", "grpc "):
        assert sum(len(case.steps) for case in CASES if case.id.startswith(door)) >= ENOUGH / 2


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: difference.row)
def test_every_known_difference_is_there(court: Court, difference: Difference) -> None:
    hit = any(difference.matches(case.id, found) for case in CASES for found in court.compare(case))
    assert hit, "no case differs in this way any more"


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: difference.row)
def test_every_known_difference_has_its_row(difference: Difference) -> None:
    (row,) = [row for begins, row in rows().items() if begins.startswith(difference.row)]
    switched = any(one.switched for one in DIFFERENCES if row.startswith(f"| {one.row}"))
    assert (SWITCHED in row) == switched, row


@pytest.mark.parametrize("name", FATAL)
def test_what_ends_a_real_triton_is_answered(court: Court, name: str) -> None:
    step, status, fragment = FATAL[name]
    answer = step.send(court.bident)
    assert answer["status"] == status, answer
    assert fragment in str(answer), answer
