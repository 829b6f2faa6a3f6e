"""Finding and importing the model's file."""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import types
from pathlib import Path
from typing import Any

MODEL_CLASS = "TritonPythonModel"


class _SourceAlone(importlib.machinery.SourceFileLoader):
    """Never reads or writes bytecode: a model's folder stays as it is, and stale code is never run."""

    def path_stats(self, path: Any) -> Any:
        raise OSError("no bytecode for models")


def import_model(model_directory: str, version: str, file_name: str) -> Any:
    """The model's class. Raises whatever importing its file raises."""
    stem = file_name[: -len(".py")]
    if not file_name.endswith(".py"):
        raise ImportError(f"Model name must end with '.py'. Model name is \"{file_name}\".")
    file = Path(model_directory, version, file_name)
    if not file.is_file():
        raise ImportError(f"Python model file not found in '{file}'")
    version_directory = str(file.parent)
    _see_folder(model_directory)
    sys.path += [version_directory, model_directory]
    # The version's folder as a package, as Triton has it: the model may import its neighbours relatively.
    package = types.ModuleType(version)
    package.__path__ = [version_directory]
    sys.modules[version] = package
    importlib.invalidate_caches()
    module = importlib.import_module(f"{version}.{stem}")
    model = getattr(module, MODEL_CLASS, None)
    if model is None:
        raise AttributeError(f"module '{version}.{stem}' has no attribute '{MODEL_CLASS}'")
    return model


def _see_folder(model_directory: str) -> None:
    root = Path(model_directory).resolve()
    modules = (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES)
    sources = (_SourceAlone, importlib.machinery.SOURCE_SUFFIXES)

    def finder(path: str) -> Any:
        folder = Path(path).resolve()
        if folder != root and root not in folder.parents:
            raise ImportError(path)
        return importlib.machinery.FileFinder(path, modules, sources)

    sys.path_hooks.insert(0, finder)
    sys.path_importer_cache.clear()
