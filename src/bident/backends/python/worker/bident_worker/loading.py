"""Finding and importing the model's file."""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import types
from pathlib import Path
from typing import Any

MODEL_CLASS = "TritonPythonModel"


class SourceAlone(importlib.machinery.SourceFileLoader):
    """Never reads or writes bytecode: a model's folder stays as it is, and stale code is never run."""

    def path_stats(self, path: Any) -> Any:
        raise OSError("no bytecode for models")


def import_model(model_directory: str, version: str, file_name: str) -> Any:
    """The model's class, of a process that has this model alone. Raises whatever importing its file raises."""
    root = Path(model_directory).resolve()

    def finder(path: str) -> Any:
        folder = Path(path).resolve()
        if folder != root and root not in folder.parents:
            raise ImportError(path)
        return finder_of_sources(path)

    sys.path_hooks.insert(0, finder)
    sys.path_importer_cache.clear()
    folders = folders_of(model_directory, version)
    sys.path += folders
    return import_class(version, folders[:1], model_directory, version, file_name)


def import_class(package: str, folders: list[str], model_directory: str, version: str, file_name: str) -> Any:
    """The model's class; its file is a module of ``package``, which are the ``folders``, the version's first.

    Raises whatever importing the file raises.
    """
    stem = file_name[: -len(".py")]
    if not file_name.endswith(".py"):
        raise ImportError(f"Model name must end with '.py'. Model name is \"{file_name}\".")
    file = Path(model_directory, version, file_name)
    if not file.is_file():
        raise ImportError(f"Python model file not found in '{file}'")
    # A package, as Triton has it: the model may import its neighbours relatively.
    module = types.ModuleType(package)
    module.__path__ = folders
    sys.modules[package] = module
    importlib.invalidate_caches()
    module = importlib.import_module(f"{package}.{stem}")
    model = getattr(module, MODEL_CLASS, None)
    if model is None:
        values = vars(module).items()
        classes = [
            name
            for name, value in values
            if getattr(value, "__module__", "") == module.__name__ and isinstance(value, type)
        ]
        found = f"defines class {', '.join(classes)}" if classes else "defines no class"
        raise AttributeError(
            f"module '{version}.{stem}' has no attribute '{MODEL_CLASS}', as the model's class must be called; "
            f"{file} {found}"
        )
    return model


def folders_of(model_directory: str, version: str) -> list[str]:
    """Where the model's own modules are looked for, after all others."""
    return [str(Path(model_directory, version)), model_directory]


def finder_of_sources(path: str, loader: Any = SourceAlone) -> Any:
    """Finds modules in the folder ``path``, and leaves no trace there."""
    return importlib.machinery.FileFinder(
        path,
        (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES),
        (loader, importlib.machinery.SOURCE_SUFFIXES),
    )
