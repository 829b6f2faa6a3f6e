"""The tree backend: decision forests of XGBoost, LightGBM and treelite, as Triton's fil serves them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bident.backends.base import Backend, Device, Instance, ModelFiles
from bident.backends.fil.choosing import EngineChoice, choose_engines
from bident.backends.fil.declaration import Tensors, complete_config, declared_tensors
from bident.backends.fil.explain import Contributions
from bident.backends.fil.formats import ModelType
from bident.backends.fil.loading import TreeModel, load_trees
from bident.backends.fil.parameters import Parameters, declared_model_type, read_parameters
from bident.errors import ConfigError, invalid_arg
from bident.model.config import ModelConfig
from bident.wire.datatypes import FP32

_LOG = logging.getLogger("bident.fil")
_ZERO = np.float32(1e-35)  # LightGBM calls anything up to this a zero


class FilBackend(Backend):
    """Serves forests. Whatever the config leaves out is found in the model file, and logged."""

    name: ClassVar[str] = "fil"

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        model = load_trees(_model_path(files, config), declared_model_type(config.parameters))
        given = {**self.options.common, **self.options.own}
        wish = self.options.default_max_batch_size if "default-max-batch-size" in given else None
        return complete_config(config, model, read_parameters(config.parameters, model), wish)

    def load(self, files: ModelFiles, config: ModelConfig, device: Device) -> Instance:
        path = _model_path(files, config)
        declared = declared_model_type(config.parameters)
        model = load_trees(path, declared)
        parameters = read_parameters(config.parameters, model)
        tensors = declared_tensors(config, model, parameters)
        for warning in _warnings(model, declared, parameters):
            _LOG.warning("model '%s': %s", config.name, warning)
        choice = choose_engines(model, tensors.answer, parameters.threads or device.threads)
        return FilInstance(config, model, tensors, choice)


def _model_path(files: ModelFiles, config: ModelConfig) -> Path:
    declared = declared_model_type(config.parameters)
    names = [kind.file_name for kind in ([declared] if declared else ModelType)]
    try:
        return files.model_file(config, *names)
    except ConfigError:
        folder = files.version_directory
        present = sorted(entry for entry in folder.iterdir() if entry.is_file()) if folder.is_dir() else []
        if config.default_model_filename or len(present) != 1:
            raise
        _LOG.warning("model '%s': no %s; %s is taken", config.name, " or ".join(names), present[0].name)
        return present[0]


def _warnings(model: TreeModel, declared: ModelType | None, parameters: Parameters) -> list[str]:
    found = model.model_type
    warnings = [f"{model.path.name}: {note}" for note in model.notes if not parameters.allow_unknown_field]
    if declared is None:
        warnings.append(f"no parameter model_type: {found.value} is assumed from the content of {model.path.name}")
    usual = {kind.file_name: kind for kind in ModelType}.get(model.path.name, found)
    if usual is not found:
        warnings.append(f"{model.path.name} holds {found.description}, not {usual.description}, and is read as that")
    return [*warnings, *parameters.warnings]


class FilInstance(Instance):
    """A forest with the fastest engine for each batch size."""

    def __init__(self, config: ModelConfig, model: TreeModel, tensors: Tensors, choice: EngineChoice) -> None:
        self.choice = choice
        self._features = model.forest.features
        self._zero_as_missing = model.zero_as_missing
        self._tensors = tensors
        self._batched = config.max_batch_size > 0
        self._contributions = Contributions(model.forest) if tensors.contributions else None
        self._input = tensors.rows.name
        self._output = tensors.output.name
        output = tensors.output
        # What nearly every config declares: nothing to reshape, cast or repair.
        self._is_direct = (
            self._batched
            and output.datatype is FP32
            and output.model_dims in ((-1,), (tensors.answer.width,))
            and self._zero_as_missing is None
            and self._contributions is None
        )

    def execute(self, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        given = inputs[self._input]
        if (
            self._is_direct
            and given.ndim == 2
            and given.dtype == np.float32
            and given.shape[1] == self._features
            and given.flags.c_contiguous
            and given.flags.aligned
            and len(given)
        ):
            return {self._output: self.choice.best(len(given)).answer(given)}
        return self._execute_any(given)

    def _execute_any(self, given: NDArray[Any]) -> dict[str, NDArray[Any]]:
        leading = given.shape[:1] if self._batched else given.shape[:-1]
        rows = self._rows(given, leading)
        width = self._tensors.answer.width
        answer = self.choice.best(len(rows)).answer(rows) if len(rows) else np.empty((0, width), np.float32)
        output = self._tensors.output
        if self._batched:
            shape = (*leading, *(width if dim < 0 else dim for dim in output.model_dims))
        else:
            shape = (*leading, width) if len(output.model_dims) > len(leading) else leading
        answers: dict[str, NDArray[Any]] = {self._output: answer.reshape(shape).astype(output.datatype.numpy)}
        spec = self._tensors.contributions
        if spec is not None and self._contributions is not None:
            values = self._contributions.of(rows).reshape(len(rows), *spec.model_dims)
            answers[spec.name] = values.astype(spec.datatype.numpy)
        return answers

    def _rows(self, given: NDArray[Any], leading: tuple[int, ...]) -> NDArray[np.float32]:
        """``given`` as aligned float32 [N, features]."""
        count = int(np.prod(leading, dtype=np.int64))
        if given.size != count * self._features:
            raise invalid_arg(
                f"unexpected shape for input '{self._input}': {list(given.shape)}, "
                f"but a row of the model has {self._features} features"
            )
        rows = np.require(given.reshape(count, self._features), np.float32, ["C", "A"])
        if self._zero_as_missing is not None:
            rows = rows.copy()
            columns = rows[:, self._zero_as_missing]
            columns[np.abs(columns) <= _ZERO] = np.nan
            rows[:, self._zero_as_missing] = columns
        return rows
