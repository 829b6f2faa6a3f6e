"""Which model a worker runs, and how."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

GIB = 1024**3


@dataclass(frozen=True)
class WorkerSpec:
    """Which model a worker runs, and how.

    ``config`` is the model's completed configuration as JSON, with numbers as numbers and enums by name.
    ``environment`` is added to the server's own.
    """

    model_name: str
    version: str
    instance_name: str
    model_directory: Path
    config: str
    decoupled: bool = False
    file_name: str = "model.py"
    device_kind: str = "CPU"
    device_id: int = 0
    interpreter: Path = field(default_factory=lambda: Path(sys.executable))
    environment: dict[str, str] = field(default_factory=dict)
    memory_limit: int = 16 * GIB
    """How much shared memory a worker may have for its outputs."""
    unread_limit: int = GIB
    """How many bytes of other models' answers may wait for a worker to read them, or be kept by it."""

    def arguments(self) -> dict[str, str]:
        """What ``initialize`` is given."""
        return {
            "model_config": self.config,
            "model_instance_kind": self.device_kind,
            "model_instance_name": self.instance_name,
            "model_instance_device_id": str(self.device_id),
            "model_repository": str(self.model_directory),
            "model_version": self.version,
            "model_name": self.model_name,
        }
