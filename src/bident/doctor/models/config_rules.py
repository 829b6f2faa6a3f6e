"""Everything else that a server would refuse in a configuration."""

from __future__ import annotations

from collections.abc import Iterator

from bident.backends.base import ModelFiles
from bident.backends.discovery import Backends
from bident.backends.fil.declaration import declared_tensors
from bident.backends.fil.parameters import read_parameters
from bident.backends.onnx.complete import complete, needs_completion
from bident.doctor.models.case import Case, ModelCheck, Seen
from bident.doctor.models.onnx_file import onnx_files
from bident.doctor.models.tree_file import tree_files
from bident.errors import ConfigError
from bident.model import normalise, validate
from bident.model.config import ModelConfig
from bident.model.proto import ModelConfigProto, pb

_ROWS = 4


class ConfigRules(ModelCheck):
    """A configuration that parses, and contradicts itself or its model."""

    name = "config-rules"
    title = "The configuration breaks a rule: batching, scheduling, instances, ensemble steps, warmup, parameters"
    cause = (
        "These rules are Triton's; a server checks them when it loads the model, and stops at the first that is broken"
    )

    def look(self, case: Case) -> Iterator[Seen]:
        if case.proto is None or (not case.is_ensemble and case.backend not in Backends().names()):
            return
        try:
            _check(case)
        except ConfigError as error:
            fault, cure = _parted(error.message, f" (in {case.config_path})")
            yield Seen(case.config_path, fault, cure)


def _parted(message: str, source: str) -> tuple[str, str]:
    """The fault and the cure in the message of a refusal."""
    told = message.removesuffix(source)
    fault, _, cure = told.partition("; ") if told != message else (message, "", "")
    return fault, cure or "write in config.pbtxt what that message asks for"


def _check(case: Case) -> None:
    """Raise ConfigError as loading would, so far as that needs no model to be run."""
    config = ModelConfig.from_proto(case.filled)
    if case.backend == "onnxruntime":
        file = next(onnx_files(case), None)
        if file is None:
            return  # no legible model: other checks say so
        config = complete(config, file.served.signature, _ROWS) if needs_completion(config) else config
    elif case.backend == "fil":
        completed = _completed_trees(case, config)
        if completed is None:
            return
        config = completed
    proto = config.to_proto()
    _without_gpus(proto)
    normalise.apply(proto, 1)
    if proto.input and proto.output:  # Python models may declare theirs when they are loaded
        validate.check(proto, str(case.config_path))


def _completed_trees(case: Case, config: ModelConfig) -> ModelConfig | None:
    """``config`` with what the trees tell; None where they cannot be read, which another check says."""
    file = next(tree_files(case), None)
    if file is None:
        return None
    try:
        trees = file.trees()
    except ConfigError:
        return None
    config = Backends().get("fil").complete(ModelFiles(case.directory, case.versions[0]), config)
    declared_tensors(config, trees, read_parameters(config.parameters, trees))
    return config


def _without_gpus(proto: ModelConfigProto) -> None:
    """GPUs have a check of their own."""
    for group in proto.instance_group:
        if group.kind == pb.ModelInstanceGroup.KIND_GPU:
            group.kind = pb.ModelInstanceGroup.KIND_CPU
        del group.gpus[:]
