"""Which model the running code is of, for functions that models call without naming it.

A worker process runs one model. A server that runs models on threads of its own has several of them in
one process: then it is the context that tells (the model's thread, its coroutines), or, in threads that
the model has started itself, the code that calls.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from .errors import TritonModelException

if TYPE_CHECKING:
    from .link import Link


class Runtime:
    """What ``pb_utils`` functions need to know and reach."""

    def __init__(self, link: Link, instance_name: str, model_directory: str) -> None:
        self.link = link
        self.instance_name = instance_name
        self.model_directory = model_directory
        self.decoupled = False
        self.outputs: list[str] = []
        """The names of the outputs that the model declares."""
        self.missed: tuple[int, str, Any, Sequence[Any]] | None = None
        """When something was last looked up in vain, who was asked for what, by which name, and which there are."""
        self.executing = False
        """Whether the model may call others: it has been initialised and is not being taken down."""


_of_process: Runtime | None = None
_of_context: ContextVar[Runtime | None] = ContextVar("bident_model", default=None)
_of_package: dict[str, Runtime] = {}


def install(runtime: Runtime) -> None:
    """Make ``runtime`` the process's."""
    global _of_process
    _of_process = runtime


def enter(runtime: Runtime, package: str) -> None:
    """Make ``runtime`` that of the calling thread, and of whatever is called from the modules in ``package``."""
    _of_context.set(runtime)
    _of_package[package] = runtime


def leave(runtime: Runtime) -> None:
    """Forget ``runtime``, but for the threads that have entered it."""
    for package in [package for package, owner in list(_of_package.items()) if owner is runtime]:
        del _of_package[package]


def find() -> Runtime | None:
    """The runtime of the calling code; None where that cannot be told."""
    if _of_process is not None:
        return _of_process
    return _of_context.get() or _of_callers()


def current() -> Runtime:
    """The same. Raises TritonModelException where there is none."""
    runtime = find()
    if runtime is None:
        raise TritonModelException(
            "there is no server, or it cannot be told which of its models asks: call from the model's own code"
        )
    return runtime


def _of_callers() -> Runtime | None:
    if not _of_package:
        return None
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__")
        runtime = _of_package.get(name.partition(".")[0]) if isinstance(name, str) else None
        if runtime is not None:
            return runtime
        frame = frame.f_back
    return None
