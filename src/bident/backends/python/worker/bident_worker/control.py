"""Loading and unloading other models, and what a model may know about itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import TritonModelException
from .runtime import current


def load_model(model_name: str, config: str = "", files: dict[str, bytes] | None = None) -> None:
    """Have the server load a model; with ``config``, and with ``files`` in place of its folder's."""
    parcel = current().link.parcel()
    described: list[list[Any]] = []
    for path, content in (files or {}).items():
        if not isinstance(content, bytes):
            raise TypeError(f"Object of type '{type(content).__name__}' is not an instance of 'bytes'")
        described.append(parcel.add(path, "UINT8", (np.ndarray((len(content),), np.uint8, content),), (len(content),)))
    _control("Failed to load model", "load", parcel, model=model_name, config=config, files=described)


def unload_model(model_name: str, unload_dependents: bool = False) -> None:
    """Have the server unload a model."""
    _control("Failed to unload model", "unload", None, model=model_name, unload_dependents=bool(unload_dependents))


def is_model_ready(model_name: str, model_version: str = "") -> bool:
    """Whether the server would take requests for a model."""
    doing = "Failed to check model readiness"
    return bool(_control(doing, "is_ready", None, model=model_name, version=str(model_version)).get("ready"))


def get_model_dir() -> str:
    """The folder of the model's version."""
    return current().model_directory


def _control(doing: str, what: str, parcel: Any, **details: Any) -> dict[str, Any]:
    runtime = current()
    header: dict[str, Any] = runtime.link.ask(what, parcel, **details).header
    if "error" in header:
        raise TritonModelException(
            f"{doing}: Failed to process the request for model '{runtime.instance_name}', message: {header['error']}"
        )
    return header


class SharedMemory:
    """What can be known about the memory that tensors travel in."""

    def free_memory(self) -> int:
        """How many bytes are unused in the memory that the worker holds for its outputs."""
        return current().link.blocks.unused


shared_memory = SharedMemory()
