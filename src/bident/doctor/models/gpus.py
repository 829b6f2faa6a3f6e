"""Instances on GPUs that are not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bident.doctor.check import Weight
from bident.doctor.models.case import Case, ModelCheck, Seen
from bident.doctor.models.config_edit import Step, config_fix
from bident.model.proto import pb

_DEVICES = (Path("/dev/nvidia0"), Path("/proc/driver/nvidia/version"))


class GpuInstances(ModelCheck):
    """``KIND_GPU`` without one."""

    name = "gpu-instances"
    title = "The configuration asks for a GPU, and there is none"
    cause = "KIND_GPU, or a list of gpus, was copied from a machine that has one. Bident serves on the CPU"

    def look(self, case: Case) -> Iterator[Seen]:
        if case.proto is None or (case.target and any(device.exists() for device in _DEVICES)):
            return
        kinds = pb.ModelInstanceGroup
        for index, group in enumerate(case.proto.instance_group):
            if group.kind == kinds.KIND_GPU or group.gpus:
                where = (("instance_group", index),)
                yield Seen(
                    case.config_path,
                    f"instance group {index} has kind {kinds.Kind.Name(group.kind)}"
                    + (f" and gpus {list(group.gpus)}" if group.gpus else ""),
                    "write kind: KIND_CPU, or KIND_AUTO for a repository that serves both kinds of machine",
                    Weight.RISK if case.target else Weight.BROKEN,
                    fix=config_fix(
                        "write kind: KIND_CPU and no gpus",
                        case.config_path,
                        [Step("kind", "KIND_CPU", where), Step("gpus", "", where)],
                    ),
                )
