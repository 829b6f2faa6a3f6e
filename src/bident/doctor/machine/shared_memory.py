"""Room in /dev/shm, which a real Triton passes tensors through."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bident.doctor.check import Finding, Patient
from bident.doctor.machine.surroundings import MachineCheck, Surroundings
from bident.errors import ServeError
from bident.model.folder import ModelFolder
from bident.model.proto import ModelConfigProto, pb
from bident.model.repository import Repository
from bident.wire.datatypes import BY_CONFIG_NAME

_MEBIBYTE = 1 << 20
_REGION = _MEBIBYTE
"""What Triton's Python backend takes for each instance before any request (``shm-default-byte-size``)."""
_DOCKERS = 64 * _MEBIBYTE
"""What a container is given unless it is told otherwise."""


class Room(NamedTuple):
    """Bytes of /dev/shm."""

    total: int
    free: int


def _room() -> Room | None:
    try:
        usage = shutil.disk_usage("/dev/shm")
    except OSError:
        return None
    return Room(usage.total, usage.free)


class SharedMemorySize(MachineCheck):
    """Bident's own workers use anonymous memory; only clients' regions, and a real Triton, need /dev/shm."""

    name = "shared-memory-size"
    title = "/dev/shm is too small for the models of a real Triton"

    def __init__(self, surroundings: Surroundings | None = None, room: Callable[[], Room | None] = _room) -> None:
        super().__init__(surroundings)
        self._room = room

    def examine(self, patient: Patient) -> Iterator[Finding]:
        room = self._room()
        tensor, _ = self._here.settings()
        is_for_triton = tensor.engine == "triton" or patient.target.startswith("triton")
        if room is None or not (is_for_triton or tensor.allow_client_shm):
            return
        need, models = _need(patient.repository)
        wanted = f"{max(2 * need, 256 * _MEBIBYTE) // _MEBIBYTE}m"
        cure = (
            f"shm_size: {wanted} in compose, docker run --shm-size={wanted}, or mount -o remount,size={wanted} /dev/shm"
        )
        if need > room.free:
            yield self._broken(
                "/dev/shm",
                f"{room.free // _MEBIBYTE} MiB are free, and {models} need {math.ceil(need / _MEBIBYTE)} MiB for one "
                "full batch each",
                "Triton hands tensors to Python models through /dev/shm; a model that gets none ends",
                cure,
            )
        elif room.total <= _DOCKERS:
            yield self._risk(
                "/dev/shm",
                f"it has {room.total // _MEBIBYTE} MiB",
                "a container gets 64 MiB unless it is told otherwise; tensors of clients and of Python models share it",
                cure,
            )


def _need(repository: Path | None) -> tuple[int, str]:
    """Bytes for one full batch through every Python model, and the models. Sizes that vary count as 1."""
    total, names = 0, []
    for name, config in _python_models(repository):
        instances = sum(max(1, group.count) for group in config.instance_group) or 1
        tensors = sum(_bytes_of(tensor) for tensor in (*config.input, *config.output))
        total += instances * (_REGION + max(1, config.max_batch_size) * tensors)
        names.append(f"'{name}'")
    return total, " and ".join(names) or "no Python models"


def _python_models(repository: Path | None) -> Iterator[tuple[str, ModelConfigProto]]:
    if repository is None:
        return
    for name in Repository([repository]).names().names:
        try:
            config = ModelFolder(name, repository / name).raw_config()
        except ServeError:
            continue  # another check's patient
        if config.backend == "python":
            yield name, config


def _bytes_of(tensor: Any) -> int:
    word = pb.DataType.DESCRIPTOR.values_by_number.get(tensor.data_type)  # a configuration can hold any number
    datatype = BY_CONFIG_NAME.get(word.name) if word else None
    size = datatype.size if datatype and datatype.size else 1
    return size * math.prod(max(1, int(length)) for length in tensor.dims)
