"""A ``model.py`` as text: parsed, and never run."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bident.doctor.models.case import Case
from bident.model.files import open_file

_LARGEST = 4 << 20
MODEL_CLASS = "TritonPythonModel"
_GIVEN = {"triton_python_backend_utils", "c_python_backend_utils", "bident_worker"}
"""What the server brings along."""


@dataclass(frozen=True)
class PythonSource:
    """One source. ``tree`` is None where it cannot be parsed, and ``fault`` says why."""

    path: Path
    tree: ast.Module | None
    fault: str = ""

    @cached_property
    def model_class(self) -> ast.ClassDef | None:
        """The class that the backend makes an object of."""
        for node in self.tree.body if self.tree else ():
            if isinstance(node, ast.ClassDef) and node.name == MODEL_CLASS:
                return node
        return None

    def names_its_class(self) -> bool:
        """Whether the class comes by an import or an assignment."""
        for node in ast.walk(self.tree) if self.tree else ():
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                if any(alias.name == "*" or (alias.asname or alias.name) == MODEL_CLASS for alias in node.names):
                    return True
            elif isinstance(node, ast.Name) and node.id == MODEL_CLASS and isinstance(node.ctx, ast.Store):
                return True
        return False

    def packages(self) -> dict[str, int]:
        """The top-level packages that it must be able to import, with the line; others' imports stand in a ``try``."""
        found: dict[str, int] = {}
        for node in _needed(self.tree) if self.tree else ():
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                names = [node.module] if node.module and not node.level else []
            for name in names:
                found.setdefault(name.partition(".")[0], node.lineno)
        return {name: line for name, line in found.items() if name not in _GIVEN | sys.stdlib_module_names}


def python_sources(case: Case) -> Iterator[PythonSource]:
    """The model.py of each version of a Python model."""
    for path in case.model_files() if case.backend == "python" else ():
        yield read_source(path)


def read_source(path: Path) -> PythonSource:
    """Parse one source."""
    try:
        with open_file(path) as file:
            text = file.read(_LARGEST)
        return PythonSource(path, ast.parse(text, path.name))
    except SyntaxError as error:
        return PythonSource(path, None, f"line {error.lineno or 1}: {error.msg}")
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        return PythonSource(path, None, str(error) or type(error).__name__)


def _needed(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports that are not inside a ``try``, nor for type checkers alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child
        elif not isinstance(child, ast.Try) and not _for_types_alone(child):
            yield from _needed(child)


def _for_types_alone(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
