"""All cases, in the order in which they are asked."""

from __future__ import annotations

import cases_of_bodies
import cases_of_calls
import cases_of_control
import cases_of_generate
import cases_of_memory
import cases_of_questions
import cases_of_routes
import cases_of_sequences
import cases_of_settings
from judged_case import unique

CASES = unique(
    case
    for family in (
        cases_of_routes.cases,
        cases_of_questions.cases,
        cases_of_bodies.cases,
        cases_of_generate.cases,
        cases_of_calls.cases,
        cases_of_sequences.cases,
        cases_of_settings.cases,
        cases_of_memory.cases,
        cases_of_control.cases,
    )
    for case in family()
)
