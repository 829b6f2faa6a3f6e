"""Answers each output with the input at the same position: the smallest backend there is."""

from __future__ import annotations

from typing import Any, ClassVar

from numpy.typing import NDArray

from bident.backends.base import Backend, Device, Instance, ModelFiles
from bident.errors import ConfigError
from bident.model.config import ModelConfig


class IdentityBackend(Backend):
    """Serves models that have no file at all (an empty version folder is enough)."""

    name: ClassVar[str] = "identity"

    def load(self, files: ModelFiles, config: ModelConfig, device: Device) -> Instance:
        if len(config.inputs) != len(config.outputs):
            raise ConfigError(f"identity model '{config.name}' needs as many outputs as inputs")
        return _Identity(dict(zip(config.inputs, config.outputs, strict=True)))


class _Identity(Instance):
    def __init__(self, output_of: dict[str, str]) -> None:
        self._output_of = output_of

    def execute(self, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return {self._output_of[name]: array for name, array in inputs.items()}
