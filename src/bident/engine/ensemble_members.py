"""Who takes part in an ensemble: the versions of its members that are in service now.

Members come and go and are reloaded while their ensemble stays. Whatever follows from who they are
is worked out when they change, not for each request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from bident.engine.calls import Models
from bident.engine.servable import Servable
from bident.errors import Code, ConfigError, ServeError
from bident.model import validate
from bident.model.config import EnsembleStep, ModelConfig
from bident.model.hints import did_you_mean
from bident.model.validate_members import check_members

MOST_NESTED = 16
"""Ensembles in ensembles may be so many. Requests go down and answers come up on one stack, which has an end."""


class Known(Protocol):
    """What is in service, and what is known of what is not."""

    def find(self, name: str, version: str) -> Servable:
        """Who answers for ``name`` and ``version``. Raises ServeError."""

    def versions(self, name: str) -> list[int]:
        """The versions of ``name`` in service."""

    def names(self) -> list[str]:
        """Every name that was ever loaded or tried."""

    def failure(self, name: str) -> str | None:
        """Why no version of ``name`` is in service; None if it was never loaded."""


def complete(config: ModelConfig, source: str, known: Known) -> ModelConfig:
    """The config of an ensemble that is being loaded, with what its members decide: whether it is decoupled.

    Raises ConfigError, in Triton's words, when a member is not there or does not fit.
    """
    missing = [step.model for step in config.steps if not known.versions(step.model)]
    absent = [name for name in dict.fromkeys(missing) if known.failure(name) is None]
    if absent:
        names = sorted({*known.names()} - {config.name})
        hints = [f"'{name}': {hint}" for name in absent if (hint := did_you_mean(name, names))]
        raise ConfigError(
            f"ensemble {config.name} contains models that are not available or ambiguous: {', '.join(absent)}; "
            f"put {'it' if len(absent) == 1 else 'them'} into the model repository, once, or correct model_name"
            f" (in {source}){'; ' if hints else ''}{'; '.join(hints)}"
        )
    for index, step in enumerate(config.steps):
        _check_loaded(config.name, index, step, known)
    members = [known.find(step.model, step.version) for step in config.steps]
    if _is_too_deep(members):
        raise ConfigError(f"ensemble {config.name} {_TOO_DEEP} (in {source})")
    proto = config.to_proto()
    proto.model_transaction_policy.decoupled = check_members(config, [member.config for member in members], source)
    validate.check(proto, source)  # not everything goes with a decoupled model
    return ModelConfig.from_proto(proto)


_TOO_DEEP = (
    f"contains ensembles nested deeper than {MOST_NESTED} levels, counting itself; write the steps of an inner one "
    "into the one that contains it"
)


def _is_too_deep(members: Iterable[Servable]) -> bool:
    """Whether an ensemble of ``members`` would have more levels of ensembles than there may be."""
    level = {member for member in members if member.config.steps}
    for _ in range(MOST_NESTED - 1):
        if not level:
            return False
        level = {member for ensemble in level for member in ensemble.members if member.config.steps}
    return bool(level)


def _check_loaded(name: str, index: int, step: EnsembleStep, known: Known) -> None:
    versions = known.versions(step.model)
    if not versions:
        raise ConfigError(
            f"ensemble '{name}' depends on '{step.model}' which has no loaded version. Model '{step.model}' loading "
            f"failed with error: {known.failure(step.model)}"
        )
    if step.version and int(step.version) not in versions:
        raise ConfigError(
            f"ensemble '{name}' depends on '{step.model}' whose required version {step.version} is not loaded; "
            f"loaded: {', '.join(map(str, versions))}: change model_version in step {index}, or the version_policy of "
            f"'{step.model}'"
        )


class Member:
    """A member in one step: what the step gives it and takes from it."""

    def __init__(self, step: EnsembleStep, servable: Servable) -> None:
        config = servable.config
        self.servable = servable
        self.name = step.model
        self.version = step.version
        self.batching = config.max_batch_size > 0
        self.decoupled = config.decoupled
        self.inputs = [
            (name, step.inputs[name], spec.dims) for name, spec in config.inputs.items() if name in step.inputs
        ]
        """Input, tensor of the ensemble, declared shape without the batch dimension."""
        self.outputs = step.outputs
        self.wanted = None if step.outputs.keys() >= config.outputs.keys() else list(step.outputs)
        """The outputs to ask for; None where that is all there are."""


class Cast:
    """The members of all steps at one moment, and what they make of the ensemble."""

    def __init__(self, config: ModelConfig, servables: Sequence[Servable]) -> None:
        self.members = [Member(step, servable) for step, servable in zip(config.steps, servables, strict=True)]
        self.servables = list(dict.fromkeys(servables))
        self.nested = [servable for servable in self.servables if servable.config.steps]
        """Those that are ensembles themselves."""
        self.fault = _fault(config, [servable.config for servable in servables])
        """Why they do not fit together any more; empty if they do."""


class Members:
    """The members of one ensemble, as they are when somebody asks."""

    def __init__(self, config: ModelConfig, models: Models) -> None:
        self._config = config
        self._models = models
        self._found: list[Servable] = []
        self._cast: Cast | None = None

    @property
    def labels(self) -> dict[str, list[str]]:
        """The labels of outputs whose makers have some for them; of those that are not all there any more, the last."""
        try:
            cast = self.cast()
        except ServeError:
            if self._cast is None:
                return {}
            cast = self._cast
        return _labels(cast.members, self._config)

    def present(self) -> list[Servable]:
        """Those that are in service."""
        found: list[Servable] = []
        for step in self._config.steps:
            try:
                found.append(self._models.find(step.model, step.version))
            except ServeError:
                continue
        return list(dict.fromkeys(found))

    def cast(self) -> Cast:
        """All of them. Raises UNAVAILABLE naming the one that is missing, or does not fit any more."""
        found: list[Servable] = []
        for index, step in enumerate(self._config.steps):
            try:
                found.append(self._models.find(step.model, step.version))
            except ServeError as error:
                raise self._unavailable(f"step {index} needs model '{step.model}': {error.message}") from error
        if self._cast is None or found != self._found:
            self._cast = Cast(self._config, found)
            self._found = found
        if self._cast.fault:
            raise self._unavailable(self._cast.fault)
        if self._cast.nested and _is_too_deep(self._cast.nested):  # a member's reload may have made it so
            raise self._unavailable(f"it {_TOO_DEEP}")
        return self._cast

    def _unavailable(self, reason: str) -> ServeError:
        return ServeError(Code.UNAVAILABLE, f"ensemble '{self._config.name}' is not ready: {reason}")


def _labels(members: Sequence[Member], config: ModelConfig) -> dict[str, list[str]]:
    """Labels by output of the ensemble, where the member that makes the output has some for it."""
    return {
        tensor: member.servable.labels[name]
        for member in members
        for name, tensor in member.outputs.items()
        if tensor in config.outputs and name in member.servable.labels
    }


def _fault(config: ModelConfig, members: Sequence[ModelConfig]) -> str:
    """What a member's reload has made wrong with the ensemble."""
    try:
        decoupled = check_members(config, members, "its config, with the members as they are now")
    except ConfigError as error:
        return error.message
    if decoupled != config.decoupled:
        return f"a member became {'decoupled' if decoupled else 'one that answers once'}; load '{config.name}' again"
    return ""
