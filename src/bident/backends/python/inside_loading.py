"""Models imported into the server's own process, each under names of its own.

A model's file and its neighbours become modules of a package that no other model has, and that goes when
the model goes: two models, or two versions, may each have a ``helpers.py`` of their own. That holds for
``from . import helpers`` and, because a model's code has an ``__import__`` of its own, for
``import helpers`` as well, wherever it is said.

What the models and the server do share is everything else: the installed packages and their state,
``sys.path``, ``os.environ``, the working directory. A neighbour that is imported in another way
(``importlib.import_module("helpers")``, a pickle that names it) is known under its plain name to
everybody until the model answers: there, two models that do so at once can get each other's.
"""

from __future__ import annotations

import builtins
import importlib
import itertools
import sys
import threading
import types
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from bident.backends.python.worker.bident_worker import api
from bident.backends.python.worker.bident_worker.loading import (
    SourceAlone,
    finder_of_sources,
    folders_of,
    import_class,
)
from bident.backends.python.worker.bident_worker.runtime import Runtime, enter, find, leave

API = "triton_python_backend_utils"

_numbers = itertools.count(1)
_lock = threading.Lock()
_by_package: dict[str, Imports] = {}
_by_runtime: dict[Runtime, Imports] = {}
_roots: dict[Path, int] = {}


class Imports:
    """The modules of one model."""

    def __init__(self, runtime: Runtime, directory: str, version: str, file_name: str) -> None:
        self.package = f"bident_model_{next(_numbers)}"
        self.scope = {**vars(builtins), "__import__": self._import}
        """What the model's code has for builtins."""
        self.fresh: list[ModuleSpec] = []
        """Neighbours that are known under their plain names just now."""
        self._runtime = runtime
        self._file = (directory, version, file_name)
        self._folders = folders_of(directory, version)
        self._root = Path(directory).resolve()
        self._neighbours: dict[str, bool] = {}

    def load(self) -> Any:
        """The model's class. To be called on its own thread, which from now on is known as this model's."""
        enter(self._runtime, self.package)
        with _lock:
            _install()
            _by_package[self.package] = _by_runtime[self._runtime] = self
            _roots[self._root] = _roots.get(self._root, 0) + 1
            _forget_finders(self._root)
        return import_class(self.package, self._folders, *self._file)

    def withdraw(self) -> None:
        """Take neighbours that are known under their plain names out of everybody else's way."""
        if not self.fresh:
            return
        fresh, self.fresh = self.fresh, []
        for spec in fresh:
            module = sys.modules.get(spec.name)
            if module is not None and module.__spec__ is spec:
                del sys.modules[spec.name]

    def close(self) -> None:
        """Forget the model."""
        self.withdraw()
        with _lock:
            if _by_package.pop(self.package, None) is not None:
                del _by_runtime[self._runtime]
                _roots[self._root] -= 1
                if not _roots[self._root]:
                    del _roots[self._root]
                    _forget_finders(self._root)
        for name in list(sys.modules):
            if name == self.package or name.startswith(f"{self.package}."):
                del sys.modules[name]
        leave(self._runtime)

    def has(self, name: str) -> bool:
        """Whether ``name`` is a neighbour: in the model's folders, and nowhere else."""
        known = self._neighbours.get(name)
        if known is None:
            beside = f"{self.package}.{name}" in sys.modules or PathFinder.find_spec(name, self._folders) is not None
            known = self._neighbours[name] = beside and not _is_installed(name)
        return known

    def _import(self, name: str, *arguments: Any, **named: Any) -> Any:
        """``__import__`` of the model's code."""
        first = name.partition(".")[0]
        level = arguments[3] if len(arguments) > 3 else named.get("level", 0)
        wanted = arguments[2] if len(arguments) > 2 else named.get("fromlist")
        # A list is what C code passes (a pickle is being read): it looks for the module under its plain name then.
        if level or type(wanted) is list or not self.has(first):
            return builtins.__import__(name, *arguments, **named)
        module = importlib.import_module(f"{self.package}.{name}")
        if not wanted:
            return sys.modules[f"{self.package}.{first}"]
        # Once more, for the modules that may be among what is wanted of it.
        return builtins.__import__(module.__name__, *arguments, **named)


class _Neighbours(MetaPathFinder):
    """Finds the asking model's neighbours by their plain names; asked after all other finders."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        runtime = find() if path is None and _by_runtime else None
        imports = None if runtime is None else _by_runtime.get(runtime)
        if imports is None or not imports.has(fullname):
            return None
        module = importlib.import_module(f"{imports.package}.{fullname}")
        spec = ModuleSpec(fullname, _Again(module), origin=module.__file__)
        spec.submodule_search_locations = getattr(module, "__path__", None)
        imports.fresh.append(spec)
        return spec


class _Again(Loader):
    """Gives a module that is there already."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return self._module

    def exec_module(self, module: types.ModuleType) -> None:
        """Its code has been run."""


class _Source(SourceAlone):
    """Has a model's code run with its own builtins."""

    def exec_module(self, module: types.ModuleType) -> None:
        imports = _by_package.get(module.__name__.partition(".")[0])
        if imports is not None:
            module.__dict__["__builtins__"] = imports.scope
        super().exec_module(module)


_neighbours = _Neighbours()


def _install() -> None:
    """Have ``import triton_python_backend_utils`` and a model's own modules found."""
    module: Any = sys.modules.get(API)
    if getattr(module, "Tensor", None) is not api.Tensor:
        module = types.ModuleType(API, api.__doc__)
        module.__dict__.update({name: getattr(api, name) for name in api.__all__}, __all__=api.__all__)
        sys.modules[API] = module
    if _neighbours not in sys.meta_path:
        sys.meta_path.append(_neighbours)
        sys.path_hooks.insert(0, _hook)


def _hook(path: str) -> Any:
    """How folders of models are read: without writing bytecode into them."""
    if not _is_below(path, list(_roots)):
        raise ImportError(path)
    return finder_of_sources(path, _Source)


def _is_installed(name: str) -> bool:
    """Whether a module of that name is there for everybody."""
    module = sys.modules.get(name)
    if module is not None:
        return not isinstance(getattr(module.__spec__, "loader", None), _Again)
    others = [finder for finder in sys.meta_path if finder is not _neighbours and hasattr(finder, "find_spec")]
    return any(finder.find_spec(name, None) is not None for finder in others)


def _forget_finders(root: Path) -> None:
    for path in list(sys.path_importer_cache):
        if _is_below(path, [root]):
            sys.path_importer_cache.pop(path, None)


def _is_below(path: str, roots: list[Path]) -> bool:
    folder = Path(path).resolve()
    return any(root == folder or root in folder.parents for root in roots)
