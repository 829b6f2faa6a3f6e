"""ModelConfig: the validated, completed declaration of one tensor model.

The protobuf message (Triton's ``model_config.proto``) stays the single source of every field and is
what ``/v2/models/X/config`` shows. ``ModelConfig`` is a frozen, typed reading of the parts that the
engine and the backends act upon. Build one with :meth:`ModelConfig.from_proto`; change one by
changing a copy of its message (:meth:`ModelConfig.to_proto`) and reading it again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from bident.errors import ConfigError
from bident.model import ragged, sequence_batching
from bident.model.proto import ModelConfigProto, pb
from bident.model.ragged import Ragged
from bident.model.sequence_batching import SequenceBatching
from bident.wire.datatypes import BY_CONFIG_NAME, DataType


@dataclass(frozen=True)
class TensorSpec:
    """One declared input or output.

    ``dims`` is the shape a client sees, without the batch dimension; -1 is any size. ``reshape`` is
    the shape the model file has instead, or None where they agree.
    """

    name: str
    datatype: DataType
    dims: tuple[int, ...]
    reshape: tuple[int, ...] | None = None
    optional: bool = False
    allow_ragged_batch: bool = False
    label_filename: str = ""

    @cached_property
    def model_dims(self) -> tuple[int, ...]:
        """The shape the model file declares, without the batch dimension."""
        return self.dims if self.reshape is None else self.reshape


@dataclass(frozen=True)
class QueuePolicy:
    """How long and how deep one priority level may queue. Times in microseconds; 0 is no limit."""

    reject_on_timeout: bool = True
    default_timeout_us: int = 0
    allow_timeout_override: bool = False
    max_queue_size: int = 0


@dataclass(frozen=True)
class DynamicBatching:
    """``dynamic_batching``: which requests may run together and how long one may wait for company."""

    preferred_batch_sizes: tuple[int, ...]
    max_queue_delay_us: int = 0
    preserve_ordering: bool = False
    priority_levels: int = 0
    default_priority_level: int = 0
    default_queue_policy: QueuePolicy = QueuePolicy()
    priority_queue_policies: dict[int, QueuePolicy] = field(default_factory=dict)

    def policy(self, level: int) -> QueuePolicy:
        """The queue policy of priority ``level`` (1 is the most urgent)."""
        return self.priority_queue_policies.get(level, self.default_queue_policy)


@dataclass(frozen=True)
class EnsembleStep:
    """One step of an ensemble: a model, and which tensors of the ensemble it reads and writes.

    ``inputs`` has the ensemble's tensor for each mapped input of the model, ``outputs`` for each
    mapped output. ``version`` is "" for the model's latest.
    """

    model: str
    version: str
    inputs: dict[str, str]
    outputs: dict[str, str]


@dataclass(frozen=True)
class ModelConfig:
    """The declaration of one model. ``instance_count`` is summed over its instance groups.

    ``steps`` is empty unless the model is an ensemble.
    """

    proto: ModelConfigProto = field(repr=False, compare=False)
    name: str
    platform: str
    backend: str
    max_batch_size: int
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    dynamic_batching: DynamicBatching | None
    instance_count: int
    default_model_filename: str
    parameters: dict[str, str]
    decoupled: bool
    steps: tuple[EnsembleStep, ...]

    @classmethod
    def from_proto(cls, proto: ModelConfigProto) -> ModelConfig:
        """Read a message that has passed ``validate`` (a copy is kept, later changes are not seen)."""
        kept = pb.ModelConfig()
        kept.CopyFrom(proto)
        return cls(
            proto=kept,
            name=kept.name,
            platform=kept.platform,
            backend=kept.backend,
            max_batch_size=kept.max_batch_size,
            inputs={tensor.name: _tensor(tensor) for tensor in kept.input},
            outputs={tensor.name: _tensor(tensor) for tensor in kept.output},
            dynamic_batching=_dynamic_batching(kept),
            instance_count=sum(max(1, group.count) for group in kept.instance_group) or 1,
            default_model_filename=kept.default_model_filename,
            parameters={key: value.string_value for key, value in kept.parameters.items()},
            decoupled=kept.model_transaction_policy.decoupled,
            steps=tuple(_step(step) for step in kept.ensemble_scheduling.step),
        )

    def to_proto(self) -> ModelConfigProto:
        """A copy of the message, free to be changed."""
        copy = pb.ModelConfig()
        copy.CopyFrom(self.proto)
        return copy

    def instance_names(self) -> list[str]:
        """What each instance is called: the name of its group, and its number in it (as with Triton)."""
        groups = self.proto.instance_group
        if not groups:
            return [f"{self.name}_0"]
        return [f"{group.name or self.name}_{index}" for group in groups for index in range(max(1, group.count))]

    @cached_property
    def sequence_batching(self) -> SequenceBatching | None:
        """How sequences of requests run, None for a model without. Only for a message that has passed ``validate``."""
        if not self.proto.HasField("sequence_batching"):
            return None
        return sequence_batching.read(self.proto.sequence_batching)

    @cached_property
    def ragged(self) -> Ragged | None:
        """Inputs and outputs that are not one row after the other, None for a model without. As before."""
        return ragged.read(self.proto)

    @cached_property
    def required_inputs(self) -> frozenset[str]:
        """Names of the inputs that a request must carry."""
        return frozenset(name for name, spec in self.inputs.items() if not spec.optional)


def _tensor(tensor: Any) -> TensorSpec:
    word = pb.DataType.DESCRIPTOR.values_by_number.get(tensor.data_type)
    datatype = BY_CONFIG_NAME.get(word.name) if word is not None else None
    if datatype is None:
        raise ConfigError(
            f"tensor '{tensor.name}' has no data_type; set one of {', '.join(BY_CONFIG_NAME)} in config.pbtxt"
        )
    return TensorSpec(
        name=tensor.name,
        datatype=datatype,
        dims=tuple(tensor.dims),
        reshape=tuple(tensor.reshape.shape) if tensor.HasField("reshape") else None,
        optional=getattr(tensor, "optional", False),
        allow_ragged_batch=getattr(tensor, "allow_ragged_batch", False),
        label_filename=getattr(tensor, "label_filename", ""),
    )


def _step(step: Any) -> EnsembleStep:
    version = "" if step.model_version == -1 else str(step.model_version)
    # The maps of protobuf have no order of their own; messages and requests should have one.
    maps = [dict(sorted(mapped.items())) for mapped in (step.input_map, step.output_map)]
    return EnsembleStep(step.model_name, version, *maps)


def _queue_policy(policy: Any) -> QueuePolicy:
    return QueuePolicy(
        reject_on_timeout=policy.timeout_action == pb.ModelQueuePolicy.REJECT,
        default_timeout_us=policy.default_timeout_microseconds,
        allow_timeout_override=policy.allow_timeout_override,
        max_queue_size=policy.max_queue_size,
    )


def _dynamic_batching(config: ModelConfigProto) -> DynamicBatching | None:
    if not config.HasField("dynamic_batching"):
        return None
    batching = config.dynamic_batching
    return DynamicBatching(
        preferred_batch_sizes=tuple(sorted(batching.preferred_batch_size)),
        max_queue_delay_us=batching.max_queue_delay_microseconds,
        preserve_ordering=batching.preserve_ordering,
        priority_levels=batching.priority_levels,
        default_priority_level=batching.default_priority_level,
        default_queue_policy=_queue_policy(batching.default_queue_policy),
        priority_queue_policies={
            level: _queue_policy(policy) for level, policy in batching.priority_queue_policy.items()
        },
    )
