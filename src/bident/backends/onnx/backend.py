"""The backend ``onnxruntime``: completes, checks and loads ONNX models."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from bident.backends.base import Backend, BackendOptions, Device, Instance, ModelFiles
from bident.backends.onnx.check import check
from bident.backends.onnx.complete import complete, needs_completion
from bident.backends.onnx.instance import make_instance
from bident.backends.onnx.modelfile import Edition, edition, find_model_file, folder_edition
from bident.backends.onnx.session import open_session, probe_settings, run_options
from bident.backends.onnx.settings import SessionSettings, default_max_batch_size, ignored_settings, read_settings
from bident.backends.onnx.signature import Signature, read_signature
from bident.backends.onnx.zipmap import Rewritten, without_zipmap
from bident.model.config import ModelConfig

_LOG = logging.getLogger("bident.onnx")
_REWRITTEN_KEPT = 8
"""Rewritten models kept for further instances of the same file; the oldest is dropped first."""


class OnnxBackend(Backend):
    """Serves ``model.onnx`` on ONNX Runtime's CPU provider.

    Thread-safe: the lifecycle may load several models at once.
    """

    name: ClassVar[str] = "onnxruntime"
    default_instance_count: ClassVar[int] = 2

    def __init__(self, options: BackendOptions | None = None) -> None:
        super().__init__(options)
        self._lock = threading.Lock()
        self._sharing = threading.Lock()
        self._said: dict[str, list[str]] = {}
        self._rewritten: OrderedDict[Edition, Rewritten] = OrderedDict()
        self._shared: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """Fill in inputs, outputs and batching by Triton's rules; see :mod:`.complete`."""
        if not needs_completion(config):
            return config
        settings = probe_settings(read_settings(files, config, self.options, Device()))
        _, signature = self._open(config.name, find_model_file(files, config), settings)
        return complete(config, signature, default_max_batch_size(self.options))

    def load(self, files: ModelFiles, config: ModelConfig, device: Device) -> Instance:
        """A session of its own (or the model's shared one), checked against ``config``."""
        settings = read_settings(files, config, self.options, device)
        path = find_model_file(files, config)
        if settings.shared:
            session, signature = self._open_shared(config.name, path, settings)
        else:
            session, signature = self._open(config.name, path, settings)
        self._say(config.name, [*ignored_settings(config, self.options), *check(config, signature)])
        return make_instance(config, session, signature, run_options(settings))

    def _open_shared(self, name: str, path: Path, settings: SessionSettings) -> tuple[Any, Signature]:
        """The session that another instance of the same file and settings has, while one lives."""
        key = (folder_edition(path), settings)
        with self._sharing:
            session = self._shared.get(key)
            if session is None:
                session, signature = self._open(name, path, settings)
                self._shared[key] = session
                return session, signature
        return session, read_signature(session)

    def _open(self, name: str, path: Path, settings: SessionSettings) -> tuple[Any, Signature]:
        """A session on the model, without its ZipMaps if it had any."""
        this = edition(path)
        known = self._rewritten.get(this)
        session = open_session(name, path, settings, known.content if known else None)
        signature = read_signature(session)
        if known or all(tensor.is_tensor for tensor in signature.outputs.values()):
            return session, signature
        rewritten = self._rewrite(name, path, this)
        if rewritten is None:
            return session, signature
        session = open_session(name, path, settings, rewritten.content)
        return session, read_signature(session)

    def _rewrite(self, name: str, path: Path, this: Edition) -> Rewritten | None:
        with self._lock:
            if this in self._rewritten:
                return self._rewritten[this]
            rewritten = without_zipmap(path)
            if rewritten is None:
                return None
            self._rewritten[this] = rewritten
            while len(self._rewritten) > _REWRITTEN_KEPT:
                self._rewritten.popitem(last=False)
        for output, classes in rewritten.classes.items():
            _LOG.warning(
                "model '%s': output '%s' was a ZipMap (a list of dictionaries, which NVIDIA Triton refuses and no "
                "request can carry); the FP32 tensor [-1,%d] that went into it is served instead, its columns in class "
                "order: %s. To export the model so: to_onnx(model, X, options={'zipmap': False}) of skl2onnx, "
                "convert_lightgbm(model, ..., zipmap=False) of onnxmltools",
                name,
                output,
                len(classes),
                ", ".join(classes[:20]) + (", ..." if len(classes) > 20 else ""),
            )
        return rewritten

    def _say(self, model: str, notes: list[str]) -> None:
        """Log a model's warnings unless they are those of its last instance."""
        if self._said.get(model, []) != notes:
            self._said[model] = notes
            for note in notes:
                _LOG.warning("%s", note)
