"""What the fil backend of a real Triton must be told, and Bident finds out."""

from __future__ import annotations

from collections.abc import Iterator

from bident.backends.base import ModelFiles
from bident.backends.discovery import Backends
from bident.backends.fil.formats import ModelType
from bident.backends.fil.loading import Task, TreeModel
from bident.doctor.check import Weight
from bident.doctor.models.case import Case, ModelCheck, Seen
from bident.doctor.models.config_edit import Step, config_fix, parameter, quoted
from bident.doctor.models.tree_file import TreeFile, tree_files
from bident.doctor.release import Release
from bident.errors import ConfigError
from bident.model.proto import ModelConfigProto


class FilParameters(ModelCheck):
    """``output_class``, ``threshold``, ``model_type``."""

    name = "fil-parameters"
    title = "A tree model's configuration lacks parameters that Triton's fil backend demands"
    cause = (
        "fil does not look into the model: whether it classifies, from which score on, and how the file is written "
        "must be declared"
    )

    def look(self, case: Case) -> Iterator[Seen]:
        file = next(tree_files(case), None)
        if case.proto is None or case.config_text is None or file is None:
            return
        try:
            trees = file.trees()
        except ConfigError:
            return  # another check's business
        given = set(case.proto.parameters)
        is_classifier = "true" if trees.is_classifier else "false"
        missing: dict[str, str] = {}
        if "model_type" not in given and file.kind is not ModelType.XGBOOST:
            missing["model_type"] = file.kind.value
        if "output_class" not in given and not ("is_classifier" in given and _knows(case.target)):
            missing["output_class"] = _declared(case.proto, is_classifier)
        if "threshold" not in given and is_classifier == "true" and (case.target or _decides(case.proto, trees)):
            missing["threshold"] = "0.5"
        if missing:
            yield self._seen(case, missing)

    def _seen(self, case: Case, missing: dict[str, str]) -> Seen:
        names = ", ".join(f'{key}: "{value}"' for key, value in missing.items())
        first = next(iter(missing))
        says = f", else it refuses the model: Required parameter {first} not found" if first != "model_type" else ""
        return Seen(
            case.config_path,
            f"no parameter {', '.join(missing)}{f' for {case.target}' if case.target else ''}",
            f"declare {names}",
            Weight.BROKEN if case.target else Weight.RISK,
            cause=f"{self.cause}{says}. Bident reads all of it from the trees",
            fix=config_fix(
                f"add the parameters {names}",
                case.config_path,
                [parameter(key, value) for key, value in missing.items()],
            ),
        )


def _decides(proto: ModelConfigProto, trees: TreeModel) -> bool:
    """Whether a threshold has any effect; fil demands one of every classifier."""
    asks = "predict_proba" in proto.parameters and proto.parameters["predict_proba"].string_value.lower() == "true"
    return trees.task is Task.BINARY and not asks


def _declared(proto: ModelConfigProto, otherwise: str) -> str:
    """What ``is_classifier`` says, which an older Triton does not know."""
    # Not by its key alone: to ask a protobuf map for a key makes an entry.
    return str(proto.parameters["is_classifier"].string_value) if "is_classifier" in proto.parameters else otherwise


def _knows(target: Release | None) -> bool:
    return target is None or target.knows_is_classifier


class FilDeclaration(ModelCheck):
    """A fil configuration that is incomplete for Triton."""

    name = "fil-declaration"
    title = "A tree model's configuration does not declare what Triton's fil backend cannot complete"
    cause = (
        "fil completes nothing: max_batch_size, input__0 and output__0 must be in config.pbtxt. Bident completes them"
    )

    def look(self, case: Case) -> Iterator[Seen]:
        file = next(tree_files(case), None)
        if case.proto is None or file is None:
            return
        lacking = [name for name in ("input", "output") if not getattr(case.proto, name)]
        if case.config_text is None or lacking:
            yield self._incomplete(case, file, lacking)
        elif case.target is not None:
            yield from _foreign_names(case)

    def _incomplete(self, case: Case, file: TreeFile, lacking: list[str]) -> Seen:
        what = f"no {' and no '.join(lacking)} in it" if case.config_text is not None else "there is no config.pbtxt"
        fix = None
        completed = _completed(case)
        if completed is not None:
            steps = [
                Step(side, _tensor(getattr(completed, side)[0]), replace=False)
                for side in ("input", "output")
                if not getattr(case.filled, side)
            ]
            if not case.filled.max_batch_size:
                steps.append(Step("max_batch_size", str(completed.max_batch_size)))
            if not (case.proto and case.proto.backend):
                steps.insert(0, Step("backend", '"fil"'))
            fix = config_fix("declare them as Bident completes them", case.config_path, steps)
        return Seen(
            case.config_path,
            what,
            'declare max_batch_size, input "input__0" and output "output__0", both TYPE_FP32',
            Weight.BROKEN if case.target else Weight.RISK,
            fix=fix,
        )


def _completed(case: Case) -> ModelConfigProto | None:
    """The configuration as Bident's backend completes it; None where it refuses to."""
    if case.config is None or not case.versions:
        return None
    try:
        return Backends().get("fil").complete(ModelFiles(case.directory, case.versions[-1]), case.config).to_proto()
    except ConfigError:
        return None


def _tensor(tensor: ModelConfigProto) -> str:
    dims = ", ".join(map(str, tensor.dims))
    return f"{{ name: {quoted(tensor.name)} data_type: TYPE_FP32 dims: [ {dims} ] }}"


def _foreign_names(case: Case) -> Iterator[Seen]:
    """fil asks each request for ``input__0``, whatever the configuration calls it."""
    assert case.proto is not None
    for side in ("input", "output"):
        for tensor in getattr(case.proto, side):
            wanted = f"{side}__0"
            if tensor.name not in (wanted, "treeshap_output"):
                yield Seen(
                    case.config_path,
                    f"{side} is called '{tensor.name}'",
                    f"call it '{wanted}', here and in the clients",
                    cause=f"fil knows '{wanted}' alone: requests that send '{tensor.name}' fail there",
                )
