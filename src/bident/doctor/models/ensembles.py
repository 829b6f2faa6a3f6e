"""Ensembles, and the models they are made of."""

from __future__ import annotations

from collections.abc import Iterator

from bident.doctor.models.case import Case, ModelCheck, Seen, entries
from bident.doctor.models.config_edit import Step, config_fix, quoted
from bident.errors import ConfigError
from bident.model.config import ModelConfig
from bident.model.folder import version_of
from bident.model.hints import closest, listed
from bident.model.subject import Subject
from bident.model.validate_ensemble import check_ensemble
from bident.model.validate_members import check_members


class EnsembleMembers(ModelCheck):
    """Steps whose model is absent, or does not fit."""

    name = "ensemble-members"
    title = "An ensemble names a model that the repository does not hold, or tensors that its models do not have"
    cause = "A step names a folder of the same repository, and maps that model's inputs and outputs by their names"

    def look(self, case: Case) -> Iterator[Seen]:
        if case.proto is None or not case.is_ensemble:
            return
        models = [entry.name for entry in entries(case.repository) if entry.is_dir() and version_of(entry.name) is None]
        absent = False
        for index, step in enumerate(case.proto.ensemble_scheduling.step):
            if step.model_name and step.model_name not in models:
                absent = True
                yield self._absent(case, index, str(step.model_name), [name for name in models if name != case.name])
        if not absent:
            yield from self._misfit(case)

    def _absent(self, case: Case, index: int, name: str, models: list[str]) -> Seen:
        near = closest(name, models)
        fix = None
        if near:
            where = (("ensemble_scheduling", 0), ("step", index))
            fix = config_fix(
                f"write model_name: {quoted(near)}", case.config_path, [Step("model_name", quoted(near), where)]
            )
        return Seen(
            case.config_path,
            f"step {index} names '{name}'; {f'did you mean {near!r}?' if near else f'there is {listed(models)}'}",
            f"put the model into {case.repository / name}, or correct model_name in step {index}",
            fix=fix,
        )

    def _misfit(self, case: Case) -> Iterator[Seen]:
        """What the members' own configurations contradict, as far as they say it."""
        if case.config is None or not case.config.steps:
            return
        members: list[ModelConfig] = []
        for step in case.config.steps:
            member = Case(case.repository / step.model, case.repository, case.target).config
            if member is None or not (member.inputs and member.outputs):
                return  # Completed from its file when it is loaded: not known here.
            members.append(member)
        try:
            # What is wrong with the ensemble alone is the check config-rules' to say.
            check_ensemble(Subject(case.filled, str(case.config_path)))
        except ConfigError:
            return
        try:
            check_members(case.config, members, str(case.config_path))
        except ConfigError as error:
            yield Seen(case.config_path, error.message, "correct the step's input_map or output_map, or the dims")
