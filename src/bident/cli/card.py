"""What a command knows about a model before it asks it anything: its metadata and configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bident.client import Client
from bident.model.parameters import parameter, synthetic


@dataclass(frozen=True)
class TensorCard:
    """One input or output as clients see it: ``shape`` has the batch dimension, -1 is any size."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    optional: bool = False
    labelled: bool = False

    def __str__(self) -> str:
        return f"'{self.name}' {self.datatype} {list(self.shape)}"


@dataclass(frozen=True)
class ModelCard:
    """A model as its server describes it."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: dict[str, TensorCard]
    outputs: dict[str, TensorCard]
    config: dict[str, Any]

    @classmethod
    def fetch(cls, client: Client, model: str, version: str = "") -> ModelCard:
        """Ask ``client`` for the model. Raises what the server answers, such as NOT_FOUND."""
        metadata, config = client.metadata(model, version), client.config(model, version)
        return cls(
            name=model,
            versions=tuple(metadata.get("versions", ())),
            platform=metadata.get("platform", ""),
            inputs=_tensors(metadata.get("inputs", []), config.get("input", [])),
            outputs=_tensors(metadata.get("outputs", []), config.get("output", [])),
            config=config,
        )

    @property
    def max_batch_size(self) -> int:
        """The most rows of one request; 0 when the model has no batch dimension."""
        return int(self.config.get("max_batch_size", 0))

    @property
    def decoupled(self) -> bool:
        """Whether it answers a request any number of times."""
        return bool(self.config.get("model_transaction_policy", {}).get("decoupled"))

    def lone_sequence(self, number: int) -> dict[str, Any]:
        """The parameters that make a request a whole sequence, with the id ``number``; none where it needs none."""
        sequences = self.config.get("sequence_batching")
        if sequences is None or sequences.get("iterative_sequence"):
            return {}
        controls = [control for entry in sequences.get("control_input", []) for control in entry.get("control", [])]
        as_text = any(
            control.get("kind") == "CONTROL_SEQUENCE_CORRID" and control.get("data_type") == "TYPE_STRING"
            for control in controls
        )
        return {"sequence_id": str(number) if as_text else number, "sequence_start": True, "sequence_end": True}

    @property
    def backend(self) -> str:
        """The backend that runs it."""
        return str(self.config.get("backend") or self.config.get("platform") or "")

    @property
    def batching(self) -> str:
        """How requests are put together, in a few words."""
        return batching(self.config)

    @property
    def synthetic(self) -> str:
        """Why its answers mean nothing: seeded weights stand in for trained ones. Empty for real models."""
        return synthetic(self.config)

    def parameter(self, name: str) -> str:
        """A parameter of its configuration; empty where it is not set."""
        return parameter(self.config, name)

    def signature(self) -> str:
        """Its inputs, for error messages."""
        return f"model '{self.name}' takes {', '.join(str(tensor) for tensor in self.inputs.values()) or 'no inputs'}"


def batching(config: dict[str, Any]) -> str:
    """How requests of a model with ``config`` are put together, in a few words."""
    size = int(config.get("max_batch_size", 0))
    if "sequence_batching" in config:
        return f"sequence, up to {max(size, 1)}"
    if "ensemble_scheduling" in config:
        return "ensemble"
    if "dynamic_batching" in config:
        return f"dynamic, up to {size}"
    return f"as sent, up to {size}" if size else "none"


def _tensors(described: list[dict[str, Any]], configured: list[dict[str, Any]]) -> dict[str, TensorCard]:
    by_name = {entry.get("name"): entry for entry in configured}
    cards = {}
    for entry in described:
        more = by_name.get(entry["name"], {})
        cards[entry["name"]] = TensorCard(
            name=entry["name"],
            datatype=entry["datatype"],
            shape=tuple(int(dim) for dim in entry["shape"]),
            optional=bool(more.get("optional")),
            labelled=bool(more.get("label_filename")),
        )
    return cards
