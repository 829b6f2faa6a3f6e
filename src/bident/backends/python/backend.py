"""Backend ``python``: a ``model.py`` in a process of its own, or, trusted, inside the server.

What a model may do and how it is configured is Triton's (``python_backend``'s README): parameters
``EXECUTION_ENV_PATH`` and ``FORCE_CPU_ONLY_INPUT_TENSORS`` (which changes nothing here). ``LANE``
says where it runs: ``process`` (the default), ``thread`` or ``inline``.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from bident.backends.base import Backend, BackendOptions, Device, ModelFiles, RequestInstance
from bident.backends.python import inside
from bident.backends.python.caches import cache_variables
from bident.backends.python.environment import PARAMETER, environment_of
from bident.backends.python.host import Worker
from bident.backends.python.instance import PythonInstance
from bident.backends.python.messages import Event, LogLine
from bident.backends.python.metrics import CustomMetrics
from bident.backends.python.options import log_ineffective, patience_of
from bident.backends.python.spec import WorkerSpec
from bident.errors import ConfigError
from bident.model import pbtxt
from bident.model.config import ModelConfig
from bident.model.files import open_file
from bident.model.parameters import LANE

logger = logging.getLogger("bident.python")

FILE_NAME = "model.py"
_MAX_SOURCE_BYTES = 4 << 20
"""More than anybody writes by hand."""


class PythonBackend(Backend):
    """Serves models that are Python code."""

    name: ClassVar[str] = "python"
    completes_elsewhere: ClassVar[bool] = True
    lanes: ClassVar[tuple[str, ...]] = ("process", "thread", "inline")

    def __init__(self, options: BackendOptions | None = None) -> None:
        super().__init__(options)
        self._metrics = CustomMetrics()
        self._patience = patience_of(self.options)
        log_ineffective(self.options)

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """What the model's ``auto_complete_config`` makes of ``config``, asked where it will run."""
        if not _may_complete(files, files.model_file(config, FILE_NAME)):
            return config
        spec = self._spec(files, config, Device())
        if _is_inside(config):
            completed = inside.complete(spec, self._metrics, self._patience)
        else:
            worker = Worker(spec)
            try:
                completed = worker.complete(self._patience.start_seconds, _log(config.name))
            finally:
                worker.close()
        return config if completed is None else _read(config, completed)

    def load(self, files: ModelFiles, config: ModelConfig, device: Device) -> RequestInstance:
        spec = self._spec(files, config, device)
        if not config.inputs and not config.outputs and not (files.directory / "config.pbtxt").exists():
            raise ConfigError(_undeclared(files, config))
        if _is_inside(config):
            inline = _lane(config) == "inline"
            return inside.InsideInstance(spec, self._metrics, self._patience, inline=inline)
        if sys.platform == "win32":
            raise ConfigError(
                f"model '{config.name}': worker processes need Unix sockets that carry descriptors, which Windows has "
                f"not; if you trust the model, run it in the server: parameter {LANE} 'thread'"
            )
        return PythonInstance(spec, self._metrics, self._patience, batching=config.max_batch_size > 0)

    def metrics(self) -> Iterable[str]:
        return (f"{line}\n" for line in self._metrics.lines())

    def _spec(self, files: ModelFiles, config: ModelConfig, device: Device) -> WorkerSpec:
        cache = self.options.cache_directory
        if _is_inside(config):
            _check_environment(config)
            os.environ.update(cache_variables(cache, os.environ))
        environment = environment_of(config.parameters.get(PARAMETER, ""), files.directory, cache / "environments")
        return WorkerSpec(
            model_name=config.name,
            version=str(files.version),
            instance_name=device.instance or f"{config.name}_0",
            model_directory=files.directory,
            config=json.dumps(pbtxt.to_dict(config.proto)),
            decoupled=config.decoupled,
            file_name=files.model_file(config, FILE_NAME).name,
            device_kind="CPU",
            interpreter=environment.interpreter,
            environment={**cache_variables(cache, os.environ), **environment.variables},
        )


def _is_inside(config: ModelConfig) -> bool:
    """Whether the model is trusted to run in the server itself."""
    return _lane(config) in ("thread", "inline")


def _lane(config: ModelConfig) -> str:
    return config.parameters.get(LANE, "").lower()


def _check_environment(config: ModelConfig) -> None:
    if config.parameters.get(PARAMETER):
        raise ConfigError(
            f"model '{config.name}': {LANE} '{_lane(config)}' runs it in the server's own Python, "
            f"so {PARAMETER} cannot be had; leave out one of the two parameters"
        )


def _may_complete(files: ModelFiles, model: Path) -> bool:
    """Whether ``auto_complete_config`` is in any source of the model: a process with nothing to do is not started.

    A source too large to be looked through may hold it.
    """
    sources = {model, *files.version_directory.glob("*.py"), *files.directory.glob("*.py")}
    for source in sorted(sources):
        try:
            with open_file(source) as file:
                text = file.read(_MAX_SOURCE_BYTES + 1)
        except OSError as error:
            raise ConfigError(
                f"a source of the model cannot be read: {source}: {error.strerror or error}; put a file in its place, "
                "or take it away"
            ) from error
        if b"auto_complete_config" in text or len(text) > _MAX_SOURCE_BYTES:
            return True
    return False


def _undeclared(files: ModelFiles, config: ModelConfig) -> str:
    """Where a model says nothing of its tensors: how it could."""
    name = files.model_file(config, FILE_NAME).name
    if _may_complete(files, files.model_file(config, FILE_NAME)):
        lack = f"auto_complete_config of {name} adds no input or output (or auto-completion is off)"
    else:
        lack = f"{name} has no auto_complete_config"
    return (
        f"model '{config.name}' declares no tensors: there is no config.pbtxt in {files.directory}, and {lack}; write "
        'one: backend: "python"  max_batch_size: 8  input [ { name: "INPUT0"  data_type: TYPE_FP32  dims: [ -1 ] } ]  '
        'output [ { name: "OUTPUT0"  data_type: TYPE_FP32  dims: [ -1 ] } ]'
    )


def _read(config: ModelConfig, completed: dict[str, Any]) -> ModelConfig:
    """``config`` as the model has completed it. Raises ConfigError for what is no configuration."""
    proto = pbtxt.parse_json(json.dumps(completed), f"auto_complete_config of model '{config.name}'")
    return ModelConfig.from_proto(proto)


def _log(model: str) -> Any:
    def handle(event: Event) -> None:
        if isinstance(event, LogLine):
            logger.log(event.level, "%s: %s", model, event.message)

    return handle
