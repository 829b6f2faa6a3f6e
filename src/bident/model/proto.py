"""The protobuf class behind ``config.pbtxt``, taken from tritonclient without its gRPC imports.

``tritonclient.grpc`` imports grpcio when the package is touched (0.3 s); the generated message
module inside it needs only protobuf. It is loaded under its own full name, so a later ordinary
import of it finds the same module.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

_NAME = "tritonclient.grpc.model_config_pb2"


def _load() -> Any:
    if _NAME in sys.modules:
        return sys.modules[_NAME]
    package = importlib.util.find_spec("tritonclient")
    if package is None or not package.submodule_search_locations:
        raise ImportError("tritonclient is not installed: pip install 'tritonclient[grpc]'")
    path = Path(next(iter(package.submodule_search_locations)), "grpc", "model_config_pb2.py")
    spec = importlib.util.spec_from_file_location(_NAME, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[_NAME] = module
    return module


pb = _load()
"""The generated module: ``pb.ModelConfig``, ``pb.ModelInstanceGroup``, enums."""

if TYPE_CHECKING:
    from google.protobuf.message import Message

    ModelConfigProto: TypeAlias = Any
    _ = Message
else:
    ModelConfigProto = pb.ModelConfig
