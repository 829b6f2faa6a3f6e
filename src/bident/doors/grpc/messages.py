"""The messages of ``inference.GRPCInferenceService``: tritonclient's generated module, without its gRPC imports.

``tritonclient.grpc.service_pb2`` asks its own package for the module of ``config.pbtxt``, and that package
imports grpcio (0.3 s, and threads of its own). While the module is loaded a stand-in answers for the package;
afterwards whoever imports ``tritonclient.grpc`` gets the real one, and finds these very messages in it.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from bident.model import proto

_PACKAGE = "tritonclient.grpc"
_NAME = f"{_PACKAGE}.service_pb2"


def _load() -> Any:
    if _NAME in sys.modules:
        return sys.modules[_NAME]
    path = Path(proto.pb.__file__).with_name("service_pb2.py")
    spec = importlib.util.spec_from_file_location(_NAME, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    if _PACKAGE in sys.modules:
        spec.loader.exec_module(module)
    else:
        package = sys.modules[_PACKAGE] = ModuleType(_PACKAGE)
        package.model_config_pb2 = proto.pb  # type: ignore[attr-defined]
        try:
            spec.loader.exec_module(module)
        finally:
            del sys.modules[_PACKAGE]
    sys.modules[_NAME] = module
    return module


pb: Any = _load()
"""The generated module: ``pb.ModelInferRequest`` and all the others."""
