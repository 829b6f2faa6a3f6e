"""An engine whose models a test plays by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bident.engine.admission import Admission
from bident.engine.shared_memory import SharedMemory
from bident.errors import Code, ServeError
from bident.model.config import ModelConfig
from bident.observe.tracing import Tracing
from bident.wire.infer import InferRequest


class PlayedServable:
    """Admits requests and keeps them. ``play`` is called with each, like a scheduler that runs it at once."""

    def __init__(self, config: ModelConfig, play: Callable[[InferRequest], None] = lambda request: None) -> None:
        self.config = config
        self.requests: list[InferRequest] = []
        self.labels: dict[str, list[str]] = {}
        self.message_templates: dict[object, Any] = {}
        self._admission = Admission(config)
        self.play = play

    def infer(self, request: InferRequest) -> None:
        self._admission.admit(request)
        self.requests.append(request)
        self.play(request)


@dataclass
class PlayedEngine:
    """Stands in for the engine."""

    servables: dict[str, PlayedServable]
    cancelled: list[InferRequest] = field(default_factory=list)
    shared_memory: SharedMemory = field(default_factory=lambda: SharedMemory(allowed=True))
    tracing: Tracing = field(default_factory=Tracing)

    def servable(self, name: str, version: str) -> PlayedServable:
        if name not in self.servables or version not in ("", "1"):
            raise ServeError(Code.NOT_FOUND, f"Request for unknown model: '{name}' is not found")
        return self.servables[name]

    def cancel(self, request: InferRequest) -> None:
        self.cancelled.append(request)
