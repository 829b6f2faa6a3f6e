"""Backend ``python``: models that are Python code (see ``backend``)."""

from bident.backends.python.backend import PythonBackend

__all__ = ["PythonBackend"]
