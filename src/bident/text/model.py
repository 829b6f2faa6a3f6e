"""What a text model is: its weights, what its author declared about them, and what the weights say themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from bident.text.gguf import GgufFacts
from bident.text.names import ModelName
from bident.wire.text import Message


@dataclass(frozen=True)
class Details:
    """The ``details`` of Ollama's answers."""

    parent_model: str = ""
    format: str = "gguf"
    family: str = ""
    families: tuple[str, ...] = ()
    parameter_size: str = ""
    """As people say it: ``134.52M``."""
    quantization_level: str = ""


@dataclass(frozen=True)
class TextModel:
    """A model of a library, ready to be loaded. Paths are absolute and were there when it was read.

    ``digest`` is the sha256 (hex) of its manifest; of a bare file, of the file's path, size and time:
    it differs when the model does. ``size`` is in bytes, weights and all. ``parameters`` have the types
    that ``bident.text.parameters`` gives them. ``fault`` says why the model cannot be used: it is listed,
    but ``Library.find`` refuses it.
    """

    name: ModelName
    digest: str
    size: int
    modified_at: datetime
    weights: Path
    facts: GgufFacts
    projector: Path | None = None
    adapters: tuple[Path, ...] = ()
    template: str | None = None
    """The Modelfile's TEMPLATE, in Go's template language; None where it gave none."""
    system: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    messages: tuple[Message, ...] = ()
    license: tuple[str, ...] = ()
    details: Details = Details()
    capabilities: frozenset[str] = frozenset()
    """Of ``completion tools insert vision embedding thinking rerank``."""
    read_only: bool = False
    """It belongs to another program's library, or is a file where its owner put it."""
    renderer: str = ""
    parser: str = ""
    requires: str = ""
    fault: str = ""
