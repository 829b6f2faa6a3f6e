"""Repositories with one Python model, which Bident and a real Triton load from the same files."""

from __future__ import annotations

import shutil
from pathlib import Path

MODELS = Path(__file__).parent / "repositories"

_CONFIG = """
backend: "python"
max_batch_size: {max_batch_size}
input  [ {{ name: "INPUT0",  data_type: TYPE_FP32, dims: [ {dims} ] }} ]
output [ {{ name: "OUTPUT0", data_type: TYPE_FP32, dims: [ {dims} ] }} ]
instance_group [ {{ count: 1, kind: KIND_CPU }} ]
"""
_COUNT_UP = """
backend: "python"
input  [ { name: "IN",  data_type: TYPE_INT32, dims: [ 1 ] } ]
output [ { name: "OUT", data_type: TYPE_INT32, dims: [ 1 ] } ]
instance_group [ { count: 1, kind: KIND_CPU } ]
model_transaction_policy { decoupled: true }
"""
_BATCHING = "dynamic_batching { }\n"
_LANE = 'parameters { key: "LANE" value: { string_value: "%s" } }\n'


def identity(repository: Path, name: str, *, dims: int, max_batch_size: int = 0, lane: str = "") -> Path:
    """Add an FP32 identity of shape [``dims``] as ``name``, -1 for any length; batched if it may be.

    ``lane`` appends the parameter that says where Bident runs it; Triton ignores it.
    Returns ``repository``.
    """
    config = _CONFIG.lstrip().format(dims=dims, max_batch_size=max_batch_size)
    config += _BATCHING * (max_batch_size > 0) + _LANE % lane * bool(lane)
    return _add(repository, name, config, "identity.py")


def count_up(repository: Path, name: str) -> Path:
    """Add a decoupled model that answers a request IN times, as ``name``. Returns ``repository``."""
    return _add(repository, name, _COUNT_UP.lstrip(), "count_up.py")


def _add(repository: Path, name: str, config: str, source: str) -> Path:
    model = repository / name / "1" / "model.py"
    model.parent.mkdir(parents=True)
    shutil.copy2(MODELS / source, model)
    (repository / name / "config.pbtxt").write_text(config, encoding="utf-8")
    return repository
