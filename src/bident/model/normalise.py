"""Writes out what a config leaves to Triton's defaults, as ``/v2/models/X/config`` then shows it."""

from __future__ import annotations

from bident.model.proto import ModelConfigProto, pb

_SEQUENCE_IDLE_US = 1_000_000


def apply(proto: ModelConfigProto, default_instance_count: int) -> None:
    """Complete ``proto`` in place; applying it twice changes nothing more.

    ``default_instance_count`` is the backend's: how many instances a CPU group gets that names no
    count. Run it after the backend's own auto-complete, which may add a batcher or a batch size.
    """
    if not proto.HasField("version_policy"):
        proto.version_policy.latest.num_versions = 1
    if proto.HasField("dynamic_batching"):
        _prefer_full_batches(proto.dynamic_batching.preferred_batch_size, proto.max_batch_size)
    if proto.HasField("sequence_batching"):
        _sequences(proto)
    if proto.HasField("ensemble_scheduling"):
        # An ensemble has no instances or buffers of its own. Triton always shows whether it streams,
        # which its steps decide: whoever knows them sets the value.
        proto.model_transaction_policy.SetInParent()
        return
    for side in ("input_pinned_memory", "output_pinned_memory"):
        if not proto.optimization.HasField(side):
            getattr(proto.optimization, side).enable = True
    _instance_groups(proto, default_instance_count)


def _prefer_full_batches(sizes: object, max_batch_size: int) -> None:
    if not sizes and max_batch_size > 0:
        sizes.append(max_batch_size)  # type: ignore[attr-defined]


def _sequences(proto: ModelConfigProto) -> None:
    batching = proto.sequence_batching
    if batching.max_sequence_idle_microseconds == 0:
        batching.max_sequence_idle_microseconds = _SEQUENCE_IDLE_US
    if batching.HasField("oldest"):
        _prefer_full_batches(batching.oldest.preferred_batch_size, proto.max_batch_size)


def _instance_groups(proto: ModelConfigProto, default_count: int) -> None:
    kinds = pb.ModelInstanceGroup
    if not proto.instance_group:
        proto.instance_group.add(name=proto.name)
    for index, group in enumerate(proto.instance_group):
        if not group.name:
            group.name = f"{proto.name}_{index}"
        if group.kind == kinds.KIND_AUTO:
            group.kind = kinds.KIND_CPU
        if group.count < 1:
            group.count = default_count if group.kind == kinds.KIND_CPU else 1
