"""A backend for tests, installed as anybody's plug-in is: models that wait until a test lets them go on.

A model of ``backend: "gated"`` answers Y = X. Its parameters name files: with ``load_gate`` it loads
once that file exists, with ``gate`` it executes once that file exists, and to ``journal`` it writes
one line of JSON per execution, before it waits: the batch it was given; to ``close_journal`` one
line per instance that is closed. So tests wait for what happened instead of for how long it may take.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray

from bident.backends.base import Backend, Device, Instance, ModelFiles
from bident.model.config import ModelConfig

_POLL_SECONDS = 0.002
_DEADLINE_SECONDS = 60.0


class GatedBackend(Backend):
    name: ClassVar[str] = "gated"

    def load(self, files: ModelFiles, config: ModelConfig, device: Device) -> Instance:
        _journal(config.parameters.get("load_journal", ""), "load")
        _pass(config.parameters.get("load_gate", ""))
        return _Gated(config)


class _Gated(Instance):
    def __init__(self, config: ModelConfig) -> None:
        (self._given,) = config.inputs
        (self._answered,) = config.outputs
        self._gate = config.parameters.get("gate", "")
        self._written = config.parameters.get("journal", "")
        self._closed = config.parameters.get("close_journal", "")

    def execute(self, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        array = inputs[self._given]
        _journal(self._written, array.tolist())
        _pass(self._gate)
        return {self._answered: array}

    def close(self) -> None:
        _journal(self._closed, "closed")


def _pass(gate: str) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while gate and not Path(gate).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody opened {gate}")
        time.sleep(_POLL_SECONDS)


def _journal(path: str, entry: object) -> None:
    if path:
        with Path(path).open("a") as file:
            file.write(json.dumps(entry) + "\n")
