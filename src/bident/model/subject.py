"""What ``validate`` examines, and how it refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from bident.errors import ConfigError
from bident.model.proto import ModelConfigProto


@dataclass(frozen=True)
class Subject:
    """A config under examination; ``source`` is the file (or request) it came from."""

    proto: ModelConfigProto
    source: str

    @property
    def name(self) -> str:
        """The model's name."""
        return str(self.proto.name)

    def refuse(self, fault: str, cure: str) -> NoReturn:
        """Raise ConfigError: ``fault`` in Triton's words, then the cure, then the file."""
        raise ConfigError(f"{fault}; {cure} (in {self.source})")
