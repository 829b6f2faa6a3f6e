"""Finds backends by name through the entry-point group ``bident.backends``, our own included."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points

from bident.backends.base import Backend, BackendOptions
from bident.errors import ConfigError

GROUP = "bident.backends"

_UNBUILT = ("pytorch", "openvino", "tensorrt", "tensorflow", "dali", "vllm")
"""Backends of Triton that do not exist here: no typing mistake, so no near miss is looked for."""


class Backends:
    """The backends that are installed; each is imported and built on first use."""

    def __init__(self, options: dict[str, dict[str, str]] | None = None) -> None:
        """``options``: ``--backend-config`` settings by backend name; key ``""`` holds the common ones."""
        self._options = options or {}
        self._points: dict[str, EntryPoint] = {point.name: point for point in entry_points(group=GROUP)}
        self._built: dict[str, Backend] = {}

    def names(self) -> list[str]:
        """Every installed backend, loadable or not."""
        return sorted(self._points)

    def metrics(self) -> Iterator[str]:
        """What models in service add to the metrics page."""
        for backend in self._built.values():
            yield from backend.metrics()

    def get(self, name: str) -> Backend:
        """The backend called ``name``.

        Raises ConfigError when there is none, or when a package it needs is missing (says which).
        """
        if name in self._built:
            return self._built[name]
        point = self._points.get(name)
        if point is None:
            if name in _UNBUILT:
                raise ConfigError(
                    f"unable to find backend library for backend '{name}': Triton has it, this version of Bident does "
                    f"not (installed: {', '.join(self.names())})"
                )
            near = difflib.get_close_matches(name, self._points, 1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise ConfigError(
                f"unable to find backend library for backend '{name}'{hint} (installed: {', '.join(self.names())})"
            )
        try:
            cls: type[Backend] = point.load()
        except Exception as error:  # whatever a package does on import; not only ImportError
            raise ConfigError(f"backend '{name}' cannot be imported: {error}") from error
        options = BackendOptions(own=self._options.get(name, {}), common=self._options.get("", {}))
        return self._built.setdefault(name, cls(options))
