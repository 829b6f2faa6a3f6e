"""Refuses a config that could not be served: every check of Triton's, with the cure.

Run on the completed and normalised config. The first fault found is raised, in Triton's order: the
model as a whole, batching, ensemble, tensors, instances. Where Triton accepts what cannot work
(two inputs of one name, a warmup without data), Bident refuses it here rather than later.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from bident.model.confine import escapes
from bident.model.hints import did_you_mean
from bident.model.metric_tags import label_of
from bident.model.proto import ModelConfigProto, pb
from bident.model.subject import Subject
from bident.model.validate_batching import check_dynamic, check_sequence
from bident.model.validate_ensemble import check_ensemble
from bident.model.validate_tensors import check_datatype, check_tensors

PLATFORMS = {
    "onnxruntime": ("onnxruntime_onnx",),
    "pytorch": ("pytorch_libtorch", "torch_aoti"),
    "tensorflow": ("tensorflow_graphdef", "tensorflow_savedmodel"),
    "tensorrt": ("tensorrt_plan",),
}
"""Backends that go with certain platforms only; any other backend takes any platform."""


_MOST_INSTANCES = 1000
"""Each costs its model's memory and a thread; more is a slip of the keyboard."""


def check(proto: ModelConfigProto, source: str) -> None:
    """Raise ConfigError naming the field, the file (``source``) and the cure if ``proto`` is wrong."""
    subject = Subject(proto, source)
    _check_model(subject)
    if proto.HasField("dynamic_batching"):
        check_dynamic(subject)
    if proto.HasField("sequence_batching"):
        check_sequence(subject)
    check_ensemble(subject)
    _check_cache(subject)
    _check_agents(subject)
    for control in proto.model_metrics.metric_control:
        _check_metric(subject, control)
    _check_metric_tags(subject)
    check_tensors(subject)
    _check_filename(subject)
    _check_instances(subject)
    for group in proto.instance_group:
        _check_group(subject, group)
    for sample in proto.model_warmup:
        _check_warmup(subject, sample)


def _check_model(subject: Subject) -> None:
    proto = subject.proto
    if not proto.name:
        subject.refuse("model configuration must specify 'name'", 'add name: "<the folder\'s name>"')
    if not proto.backend and proto.platform != "ensemble":
        known = [platform for platforms in PLATFORMS.values() for platform in platforms]
        hint = did_you_mean(proto.platform, [*known, "ensemble"]) if proto.platform else "add backend"
        if proto.HasField("ensemble_scheduling"):
            hint = 'write platform: "ensemble": it has ensemble_scheduling'
        subject.refuse(f"unexpected platform type '{proto.platform}' for {proto.name}", hint)
    if proto.backend and proto.platform == "ensemble":
        subject.refuse(
            f"Ensemble model '{proto.name}' must have platform type 'ensemble' and empty backend type",
            f'remove backend: "{proto.backend}"',
        )
    platforms = PLATFORMS.get(proto.backend)
    if platforms and proto.platform not in platforms:
        subject.refuse(
            f"unexpected 'platform' and 'backend' pair, got:{proto.platform}, {proto.backend}",
            f"remove one of the two (platform is {' or '.join(platforms)} for backend {proto.backend})",
        )
    if proto.max_batch_size < 0:
        subject.refuse(
            f"'max_batch_size' must be non-negative value for {proto.name}",
            "write 0 for a model that does not batch",
        )


def _check_cache(subject: Subject) -> None:
    proto = subject.proto
    if not proto.response_cache.enable:
        return
    refusal = f"Response Cache does not currently support model {proto.name} with"
    if proto.HasField("sequence_batching"):
        subject.refuse(
            f"{refusal} sequence batching scheduler. Please disable the response cache.", "remove response_cache"
        )
    if proto.model_transaction_policy.decoupled:
        subject.refuse(
            f"{refusal} 'decoupled' transaction policy. Please disable the response cache.", "remove response_cache"
        )


def _check_agents(subject: Subject) -> None:
    for agent in subject.proto.model_repository_agents.agents:
        # Going on without the agent would skip what it guards (a checksum, a decryption).
        subject.refuse(
            f"unable to find repo agent '{agent.name}' for {subject.name}",
            "Bident has no repository agents: remove model_repository_agents",
        )


def _check_metric(subject: Subject, control: Any) -> None:
    if not control.HasField("metric_identifier"):
        subject.refuse("metric control must specify 'metric_identifier'", 'add metric_identifier { family: "..." }')
    family = control.metric_identifier.family
    if not family:
        subject.refuse("metric identifier must specify non-empty 'family'", 'add family: "<metric name>"')
    if not control.HasField("histogram_options"):
        subject.refuse("metric control must specify 'histogram_options'", f"add histogram_options for '{family}'")
    if not control.histogram_options.buckets:
        subject.refuse("histogram options must specify non-empty 'buckets'", f"add buckets: [ ... ] for '{family}'")
    bounds = list(control.histogram_options.buckets)
    if not all(one < other for one, other in pairwise(bounds)) or not math.isfinite(bounds[-1]):
        subject.refuse(f"the 'buckets' of '{family}' must be finite and rise, got {bounds}", "put them in order")


def _check_metric_tags(subject: Subject) -> None:
    keys: dict[str, str] = {}
    for key in sorted(subject.proto.metric_tags):
        label = label_of(key)
        if label.startswith("__"):
            subject.refuse(
                f"metric tag '{key}' of {subject.name} would be the label '{label}', which Prometheus reserves",
                "begin the key with a letter or a digit",
            )
        if label in keys:
            subject.refuse(
                f"metric tags '{keys[label]}' and '{key}' of {subject.name} would both be the label '{label}'",
                "rename one: in a label only letters, digits and '_' differ",
            )
        keys[label] = key


def _check_instances(subject: Subject) -> None:
    count = sum(max(1, group.count) for group in subject.proto.instance_group)
    if count > _MOST_INSTANCES:
        subject.refuse(
            f"instance groups of model {subject.name} ask for {count} instances",
            f"write a count of at most {_MOST_INSTANCES} in all; about one for each processor core is usual",
        )


def _check_filename(subject: Subject) -> None:
    filename = subject.proto.default_model_filename
    if filename and escapes(filename, below="version"):
        subject.refuse(
            f"default_model_filename '{filename}' of {subject.name} must stay within model directory",
            "name a file of the version folder",
        )


def _check_group(subject: Subject, group: Any) -> None:
    kinds = pb.ModelInstanceGroup
    label = f"instance group {group.name} of model {subject.name}"
    if group.kind == kinds.KIND_GPU:
        subject.refuse(
            f"{label} has kind KIND_GPU but no GPUs are available",
            "this server does not support GPUs: write kind: KIND_CPU",
        )
    if group.kind not in kinds.Kind.values():
        subject.refuse(f"{label} has unexpected kind {group.kind}", f"write one of {', '.join(kinds.Kind.keys())}")
    if group.gpus:
        subject.refuse(f"{label} has kind {kinds.Kind.Name(group.kind)} but specifies one or more GPUs", "remove gpus")
    platform = subject.proto.platform
    if group.profile and platform != "tensorrt_plan":
        subject.refuse(
            f"{label} and platform {f'{platform} ' if platform else ''}specifies profile field "
            "which is only supported for TensorRT models",
            "remove profile",
        )


def _check_warmup(subject: Subject, sample: Any) -> None:
    if sample.batch_size == 0:  # Triton skips such a sample
        return
    for name in sorted(sample.inputs):
        _check_warmup_input(subject, sample.name, name, sample.inputs[name])
    if 0 < subject.proto.max_batch_size < sample.batch_size:
        subject.refuse(
            f"warmup sample '{sample.name}' of {subject.name} has batch_size {sample.batch_size}",
            f"write at most max_batch_size, {subject.proto.max_batch_size}",
        )


def _check_warmup_input(subject: Subject, sample: str, name: str, tensor: Any) -> None:
    if any(dim < 0 for dim in tensor.dims):
        subject.refuse(
            f"warmup setting expects all variable-size dimensions are specified for input '{name}'",
            f"replace -1 in the dims of warmup sample '{sample}' by a size",
        )
    choice = tensor.WhichOneof("input_data_type")
    if choice is None:
        subject.refuse(
            f"warmup setting expects input '{name}' to have input_data_type set",
            f"add zero_data: true, random_data: true or input_data_file to warmup sample '{sample}'",
        )
    if choice == "input_data_file" and escapes(tensor.input_data_file, below="warmup"):
        subject.refuse(
            f"input_data_file '{tensor.input_data_file}' of input '{name}' must stay within model directory",
            "name a file of the folder 'warmup'",
        )
    check_datatype(subject, f"input '{name}' of warmup sample '{sample}' ", tensor.data_type)
