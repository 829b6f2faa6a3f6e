"""What the server says of itself and of its models, in the protocol's words: the same over both doors."""

from __future__ import annotations

from typing import Any

from bident.engine.engine import Engine
from bident.model.config import TensorSpec

EXTENSIONS = (
    "classification",
    "sequence",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "system_shared_memory",
    "cuda_shared_memory",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
)
"""What ``/v2`` lists: the protocol extensions this server has, in Triton's order."""


def server_metadata(name: str, version: str) -> dict[str, Any]:
    """Name, version and extensions of the server."""
    return {"name": name, "version": version, "extensions": EXTENSIONS}


def model_metadata(engine: Engine, name: str, version: str) -> dict[str, Any]:
    """Inputs, outputs and versions of a model; only ``version`` where one is given. Raises as ``Engine.model``."""
    servable = engine.model(name, version)
    config = servable.config
    lead = [-1] if config.max_batch_size else []
    return {
        "name": name,
        "versions": [str(servable.version)] if version else [str(number) for number in engine.lifecycle.versions(name)],
        "platform": config.platform or config.backend,
        "inputs": [_described(spec, lead) for spec in config.inputs.values()],
        "outputs": [_described(spec, lead) for spec in config.outputs.values()],
    }


async def statistics(engine: Engine, name: str, version: str) -> dict[str, Any]:
    """The figures of one model, or of all where ``name`` is empty. Raises as ``Engine.stats``."""
    rows = [
        {"name": one.name, "version": str(one.version), **one.stats.as_dict()}
        for one in await engine.figures(name, version)
    ]
    return {"model_stats": rows}


def _described(spec: TensorSpec, lead: list[int]) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype.name, "shape": [*lead, *spec.dims]}
