"""Turns a model folder into instances: read, complete, check, load. Runs off the event loop."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import TypeVar

from bident.backends.base import AnyInstance, Backend, Device, ModelFiles
from bident.backends.discovery import Backends
from bident.engine import memory, warmup_samples
from bident.engine.lane import lane_of
from bident.engine.servable import LoadedModel, close_all
from bident.errors import ConfigError, ServeError
from bident.model import autofill, initial_states, labels, normalise, validate
from bident.model.config import ModelConfig
from bident.model.folder import ModelFolder
from bident.model.proto import ModelConfigProto

logger = logging.getLogger("bident.load")

T = TypeVar("T")


def usable_cores() -> int:
    """How many cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Loader:
    """Loads models with the installed backends. Thread-safe: several models may load at once."""

    def __init__(
        self,
        backends: Backends,
        *,
        auto_complete: bool = True,
        retries: int = 0,
        at_once: int = 4,
        servers: int = 1,
    ) -> None:
        """``at_once``: as many models are read at the same time, not counting those that only wait for a worker.

        ``servers`` like this one share the machine's cores and its clients (``--workers``).
        """
        self._servers = servers
        self._turns = threading.BoundedSemaphore(at_once)
        self._backends = backends
        self._auto_complete = auto_complete
        self._retries = retries

    def versions(self, folder: ModelFolder) -> list[int]:
        """The versions that :meth:`load` will try, ascending. Raises ServeError when the folder cannot be read."""
        present = folder.versions()
        if len(present) < 2:
            return present
        try:
            return folder.select_versions(folder.raw_config())
        except ServeError:  # the load will say why; until then the latest stands for the model
            return present[-1:]

    def load(self, folder: ModelFolder) -> LoadedModel:
        """Load every version of ``folder`` that its version policy selects, or nothing at all.

        Raises ServeError with the reason; whatever a backend or anything else raises is turned into one.
        """
        try:
            return _guard(folder.name, lambda: self._load(folder))
        finally:
            memory.trim()

    def _load(self, folder: ModelFolder) -> LoadedModel:
        config, backend = self.configure(folder)
        loaded = LoadedModel(config, labels.load(folder.directory, config))
        loaded.namespace = folder.namespace
        loaded.initial_states = initial_states.load(folder.directory, config)
        if backend is None:
            loaded.instances = {version: [] for version in folder.select_versions(config.proto)}
            return loaded
        lane_of(config, backend.lanes)
        loaded.samples = warmup_samples.read(folder.directory, config)
        try:
            for version in folder.select_versions(config.proto):
                files = ModelFiles(folder.directory, version)
                with self._turns:
                    loaded.instances[version] = self._load_version(backend, files, config)
        except BaseException:
            loaded.close()
            raise
        return loaded

    def configure(self, folder: ModelFolder) -> tuple[ModelConfig, Backend | None]:
        """The completed and validated config of ``folder``, and the backend it names; an ensemble has none.

        What an ensemble's members have to say to its config is left to who knows them.
        """
        proto = folder.raw_config()
        versions = folder.versions()
        for warning in folder.warnings():
            logger.warning(warning)
        if self._servers > 1 and proto.HasField("sequence_batching"):
            raise ConfigError(
                f"model '{folder.name}' has sequence_batching, which --workers={self._servers} cannot serve: the "
                "requests of one sequence may come over several connections, and each worker would know a part of "
                "them; use --workers=1"
            )
        autofill.fill_backend(proto, folder.directory, versions)
        if is_ensemble(proto):
            return _finish(proto, folder, 1), None
        backend = self._backends.get(proto.backend)
        if self._auto_complete and versions:
            files = ModelFiles(folder.directory, versions[-1])
            with nullcontext() if backend.completes_elsewhere else self._turns:
                proto = _guard(folder.name, lambda: backend.complete(files, ModelConfig.from_proto(proto))).to_proto()
        return _finish(proto, folder, backend.default_instance_count), backend

    def _load_version(self, backend: Backend, files: ModelFiles, config: ModelConfig) -> list[AnyInstance]:
        threads = max(1, usable_cores() // (config.instance_count * self._servers))
        instances: list[AnyInstance] = []
        try:
            for name in config.instance_names():
                instances.append(self._load_instance(backend, files, config, Device("cpu", threads, name)))
        except BaseException:
            close_all(config.name, instances)
            raise
        return instances

    def _load_instance(self, backend: Backend, files: ModelFiles, config: ModelConfig, device: Device) -> AnyInstance:
        for attempt in range(self._retries + 1):
            try:
                return _guard(config.name, lambda: backend.load(files, config, device))
            except ServeError as error:
                if attempt == self._retries:
                    raise
                logger.warning("loading '%s' failed (%s), trying again", config.name, error.message)
        raise AssertionError("unreachable: the last attempt returns or raises")


def _finish(proto: ModelConfigProto, folder: ModelFolder, default_instance_count: int) -> ModelConfig:
    negative = [(group, group.count) for group in proto.instance_group if group.count < 0]
    normalise.apply(proto, default_instance_count)
    for group, count in negative:
        logger.warning(
            "'%s': the count of instance group '%s' is %d, taken as %d, as by Triton; write 1 or more (in %s)",
            proto.name,
            group.name,
            count,
            group.count,
            folder.config_path,
        )
    validate.check(proto, str(folder.config_path))
    return ModelConfig.from_proto(proto)


def is_ensemble(proto: ModelConfigProto) -> bool:
    """Whether a config, as it is written, wants to be that of an ensemble."""
    return bool(proto.platform == "ensemble" or proto.HasField("ensemble_scheduling"))


def _guard(name: str, step: Callable[[], T]) -> T:
    """Run ``step`` of a backend; whatever it raises becomes an error with one readable line."""
    try:
        return step()
    except ServeError:
        raise
    except BaseException as error:  # sys.exit() in a model must not end the server
        logger.exception("loading '%s' failed", name)
        raise readable(error) from error


def readable(error: BaseException) -> ConfigError:
    """Whatever was raised, as one line for the person whose model it is."""
    first = (str(error).strip().splitlines() or ["no message"])[0][:500]
    return ConfigError(f"{type(error).__name__}: {first}")
