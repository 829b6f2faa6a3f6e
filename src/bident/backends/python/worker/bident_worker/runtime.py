"""The model that this process runs, for code that models call without naming it."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
        self.executing = False
        """Whether the model may call others: it has been initialised and is not being taken down."""


_current: Runtime | None = None


def install(runtime: Runtime) -> None:
    """Make ``runtime`` the process's."""
    global _current
    _current = runtime


def current() -> Runtime:
    """The process's runtime. Raises TritonModelException where there is no server."""
    if _current is None:
        raise TritonModelException("there is no server: this process was not started by one")
    return _current
