"""Models with sequence batching, and the requests of sequences, for the tests of the scheduler."""

from __future__ import annotations

from typing import Any

import numpy as np

from bident.engine.sequence.scheduler import SequenceScheduler
from bident.engine.servable import Servable
from bident.model.config import ModelConfig
from tests.unit.engine.engine_fakes import INLINE, Asked, ask, model_config, tensor

CONTROLS = """
control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }
control_input { name: "END" control { kind: CONTROL_SEQUENCE_END fp32_false_true: [ -1, 2 ] } }
control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY bool_false_true: [ false, true ] } }
control_input { name: "CORRID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }
"""
OLDEST = "oldest { }"
DIRECT = "direct { }"


def sequence_config(batching: str = DIRECT, more: str = INLINE, **rest: Any) -> ModelConfig:
    """A model with the tensors of ``IO`` (see ``engine_fakes``) whose requests belong to sequences."""
    return model_config(f"sequence_batching {{ {batching} }} {more}", **rest)


def step(
    key: int | str, value: float = 0, *, start: bool = False, end: bool = False, rows: int = 1, **more: Any
) -> Asked:
    """One request of the sequence ``key``."""
    return of_sequence(ask(value, rows, **more), key, start=start, end=end)


def row(key: int | str, values: list[Any], *, start: bool = False, end: bool = False) -> Asked:
    """One request with a row of as many values as there are."""
    return of_sequence(Asked(tensor("X", values, (1, len(values)))), key, start=start, end=end)


def of_sequence(request: Asked, key: int | str, *, start: bool = False, end: bool = False) -> Asked:
    request.sequence_id, request.sequence_start, request.sequence_end = key, start, end
    return request


def scheduler(servable: Servable) -> SequenceScheduler:
    assert isinstance(servable.scheduler, SequenceScheduler)
    return servable.scheduler


def column(batch: dict[str, np.ndarray], name: str) -> list[Any]:
    """One number of each row of a batch's input."""
    values: list[Any] = batch[name][:, 0].tolist()
    return values
