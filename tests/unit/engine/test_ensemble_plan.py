"""Which steps an answer needs, and in which shape a tensor goes from one model to the next."""

from __future__ import annotations

import pytest

from bident.engine.ensemble_plan import Planner, fitted
from tests.unit.engine.ensemble_stage import ensemble_config, io, step

DIAMOND = ensemble_config(
    step("a", "I=X", "O=left P=right"),
    step("b", "I=left", "O=Y"),
    step("c", "I=right J=right K=X", "O=Z"),
    io=io("X:FP32:1", "Y:FP32:1 Z:FP32:1"),
)


def test_a_plan_counts_each_tensor_that_a_step_reads_once() -> None:
    plan = Planner(DIAMOND).plan(None)
    assert plan.needs == {0: 1, 1: 1, 2: 2}
    assert plan.readers == {"X": (0, 2), "left": (1,), "right": (2,)}
    assert plan.outputs == {"Y", "Z"}


def test_steps_that_a_wanted_output_does_not_need_are_left_out() -> None:
    plan = Planner(DIAMOND).plan(["Y"])
    assert plan.needs == {0: 1, 1: 1}
    assert plan.readers == {"X": (0,), "left": (1,)}


def test_plans_are_remembered_but_not_without_end() -> None:
    outputs = " ".join(f"Y{index}:FP32:1" for index in range(80))
    mapped = " ".join(f"Y{index}=Y{index}" for index in range(80))
    planner = Planner(ensemble_config(step("a", "I=X", mapped), io=io("X:FP32:1", outputs)))
    assert planner.plan(["Y1"]) is planner.plan(["Y1"])
    for index in range(80):
        planner.plan([f"Y{index}"])
    assert len(planner._some) <= 64


@pytest.mark.parametrize(
    ("dims", "batching", "rows", "shape", "becomes"),
    [
        # both batch, or neither: nothing changes, whatever the shape
        ((4,), True, 2, (2, 4), (2, 4)),
        ((4,), True, 2, (2, 5), (2, 5)),
        ((4,), False, 0, (5,), (5,)),
        # the reader batches and the maker does not
        ((4,), True, 0, (4,), (1, 4)),
        ((-1,), True, 0, (7,), (1, 7)),
        ((4,), True, 0, (3, 4), (3, 4)),
        ((-1, 4), True, 0, (3, 4), (1, 3, 4)),
        # the maker batches and the reader does not
        ((4,), False, 1, (1, 4), (4,)),
        ((-1, 4), False, 1, (1, 4), (1, 4)),
        ((1, 4), False, 1, (1, 4), (1, 4)),
        ((4,), False, 2, (2, 4), (2, 4)),
        ((-1, 4), False, 2, (2, 4), (2, 4)),
    ],
)
def test_a_batch_dimension_of_one_comes_and_goes_where_that_makes_it_fit(
    dims: tuple[int, ...], batching: bool, rows: int, shape: tuple[int, ...], becomes: tuple[int, ...]
) -> None:
    assert fitted(dims, batching=batching, rows=rows, shape=shape) == becomes
