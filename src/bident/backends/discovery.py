"""Finds backends by name through the entry-point group ``bident.backends``, our own included."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from bident.backends.base import Backend, BackendOptions
from bident.errors import ConfigError
from bident.settings.places import user_cache_directory

GROUP = "bident.backends"

_UNBUILT = ("pytorch", "openvino", "tensorrt", "tensorflow", "dali", "vllm")
"""Backends of Triton that do not exist here: no typing mistake, so no near miss is looked for."""


class Backends:
    """The backends that are installed; each is imported and built on first use."""

    def __init__(self, options: dict[str, dict[str, str]] | None = None, cache_directory: Path | None = None) -> None:
        """``options``: ``--backend-config`` settings by backend name; key ``""`` holds the common ones.

        ``cache_directory``: what backends keep over restarts lies there; None is the user's cache folder.
        """
        self._options = options or {}
        # Absolute: it is also told to processes that may go elsewhere.
        self._cache_directory = (cache_directory or user_cache_directory()).absolute()
        self._building = threading.Lock()
        self._points: dict[str, EntryPoint] = {point.name: point for point in entry_points(group=GROUP)}
        self._built: dict[str, Backend] = {}

    def names(self) -> list[str]:
        """Every installed backend, loadable or not."""
        return sorted(self._points)

    def metrics(self) -> Iterator[str]:
        """What models in service add to the metrics page: lines of the exposition format, newline included."""
        for backend in list(self._built.values()):  # one may be added meanwhile, by a loading thread
            yield from backend.metrics()

    def get(self, name: str) -> Backend:
        """The backend called ``name``.

        Raises ConfigError when there is none, or when a package it needs is missing (says which).
        """
        with self._building:  # two models of one kind that load at the same time share one backend
            if name not in self._built:
                self._built[name] = self._build(name)
            return self._built[name]

    def _build(self, name: str) -> Backend:
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
        return cls(
            BackendOptions(
                own=self._options.get(name, {}),
                common=self._options.get("", {}),
                cache_directory=self._cache_directory,
            )
        )
