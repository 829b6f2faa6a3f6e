"""Python models: their source, the packages it wants, the interpreter that it would get."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from bident.backends.python.environment import PARAMETER
from bident.doctor.check import Weight
from bident.doctor.models.case import Case, ModelCheck, Seen
from bident.doctor.models.interpreters import Interpreter, interpreter_of
from bident.doctor.models.python_source import MODEL_CLASS, PythonSource, python_sources
from bident.model.hints import closest

_DISTRIBUTIONS = {
    "cv2": "opencv-python-headless",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "yaml": "pyyaml",
    "bs4": "beautifulsoup4",
    "dotenv": "python-dotenv",
}
"""Packages that are installed under another name than they are imported by."""


class PythonSyntax(ModelCheck):
    """``model.py`` cannot be what the backend runs."""

    name = "python-source"
    title = "model.py is not valid Python, or has no class TritonPythonModel with execute"
    of_files = True
    cause = "The backend imports model.py, makes a TritonPythonModel and calls execute(requests) on it"

    def look(self, case: Case) -> Iterator[Seen]:
        for source in python_sources(case):
            if source.tree is None:
                yield Seen(source.path, source.fault, "correct that line; python -m py_compile FILE shows it")
            elif source.model_class is None:
                if not source.names_its_class():
                    yield Seen(
                        source.path, f"it has no class {MODEL_CLASS}{_near_class(source)}", f"call it {MODEL_CLASS}"
                    )
            elif not source.model_class.bases and "execute" not in _methods(source.model_class):
                yield Seen(
                    source.path,
                    f"{MODEL_CLASS} has no method execute",
                    "write def execute(self, requests), which returns one InferenceResponse for each request",
                )


def _near_class(source: PythonSource) -> str:
    assert source.tree is not None
    near = closest(MODEL_CLASS, [node.name for node in source.tree.body if isinstance(node, ast.ClassDef)])
    return f"; there is {near}" if near else ""


def _methods(node: ast.ClassDef) -> set[str]:
    """Everything that the class's body gives a name."""
    named = {item.name for item in node.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))}
    return named | {
        target.id
        for item in node.body
        if isinstance(item, ast.Assign)
        for target in item.targets
        if isinstance(target, ast.Name)
    }


class PythonPackages(ModelCheck):
    """Imports that would fail."""

    name = "python-packages"
    title = "model.py imports a package that its interpreter does not have"
    of_files = True
    cause = "A model runs under the server's Python, or the one of EXECUTION_ENV_PATH: packages of others are not seen"

    def look(self, case: Case) -> Iterator[Seen]:
        if case.target is not None and not _has_environment(case):
            return  # That Python is in another machine's container.
        interpreter = interpreter_of(case)
        if interpreter.fault:
            return
        for source in python_sources(case):
            missing = {
                package: line
                for package, line in source.packages().items()
                if not interpreter.has(package) and not _beside(case, source.path, package)
            }
            if missing:
                listed = ", ".join(f"'{package}' (line {line})" for package, line in missing.items())
                yield Seen(
                    source.path, f"{listed} cannot be imported by {interpreter.where}", _install(interpreter, missing)
                )


def _has_environment(case: Case) -> bool:
    return bool(case.config and case.config.parameters.get(PARAMETER))


def _beside(case: Case, source: Path, package: str) -> bool:
    """Whether it is a module of the model's own."""
    return any(
        (folder / package).is_dir() or (folder / f"{package}.py").is_file()
        for folder in (source.parent, case.directory)
    )


def _install(interpreter: Interpreter, missing: dict[str, int]) -> str:
    names = " ".join(_DISTRIBUTIONS.get(package, package) for package in missing)
    if interpreter.modules is None:
        return f"{interpreter.where} -m pip install {names}"
    if Path(interpreter.where).is_dir():
        return f"{interpreter.where}/bin/python -m pip install {names}"
    return f"install {names} into the environment and pack it again with conda-pack"


class PythonEnvironment(ModelCheck):
    """``EXECUTION_ENV_PATH`` leads nowhere, or to another Python than the server's."""

    name = "python-environment"
    title = "EXECUTION_ENV_PATH names no environment, a relative path, or another Python than Triton was built for"
    cause = (
        "A model's own environment is a folder or a conda-pack archive, named by a path that must not depend on where "
        "the server is started. Triton's stub is built for one version of Python; Bident takes any"
    )

    def look(self, case: Case) -> Iterator[Seen]:
        if case.backend != "python" or case.config is None or not _has_environment(case):
            return
        named, interpreter = case.config.parameters[PARAMETER], interpreter_of(case)
        if interpreter.fault:
            yield Seen(
                case.config_path,
                f"{PARAMETER}: {interpreter.where} {interpreter.fault}",
                "name the folder of a virtual environment, or an archive that conda-pack made",
            )
        elif not Path(named).is_absolute() and not named.startswith("$$"):
            yield Seen(
                case.config_path,
                f"{PARAMETER}: '{named}' is relative to where the server is started",
                f"write the whole path, {Path(named).absolute()}, or $$TRITON_MODEL_DIRECTORY/ in front of it",
                Weight.RISK,
            )
        wanted = case.target.python if case.target else None
        if wanted and interpreter.version and interpreter.version != wanted:
            has, built = (".".join(map(str, version)) for version in (interpreter.version, wanted))
            yield Seen(
                case.config_path,
                f"the environment has Python {has}, and {case.target} is built for {built}",
                f"make the environment with Python {built}, or build a stub for {has} and put it beside model.py",
            )


class RelativeFiles(ModelCheck):
    """``open('labels.txt')`` in a model.py."""

    name = "python-relative-files"
    title = "model.py opens a file by a relative path"
    cause = (
        "The working folder is the server's, not the model's: whether the file is found depends on where it was started"
    )

    def look(self, case: Case) -> Iterator[Seen]:
        for source in python_sources(case):
            for node in ast.walk(source.tree) if source.tree else ():
                name = _opened(node)
                if name and not Path(name).is_absolute() and _lies_with_model(case, source.path, name):
                    yield Seen(
                        source.path,
                        f"line {getattr(node, 'lineno', 0)} opens '{name}'",
                        f"write Path(__file__).parent / '{name}', or start from args['model_repository']",
                        Weight.RISK,
                    )


def _opened(node: ast.AST) -> str:
    """The literal name that a call opens a file by."""
    if not isinstance(node, ast.Call) or not node.args:
        return ""
    function = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    first = node.args[0]
    opens = function in ("open", "from_pretrained", "InferenceSession", "load", "read_csv")
    return first.value if opens and isinstance(first, ast.Constant) and isinstance(first.value, str) else ""


def _lies_with_model(case: Case, source: Path, name: str) -> bool:
    try:
        return any((folder / name).exists() for folder in (source.parent, case.directory))
    except (OSError, ValueError):
        return False
