"""Files of class labels."""

from __future__ import annotations

from collections.abc import Iterator

from bident.doctor.check import Weight
from bident.doctor.models.case import Case, ModelCheck, Seen, entries
from bident.doctor.models.config_edit import Step, config_fix, quoted
from bident.errors import ConfigError
from bident.model import labels
from bident.model.config import ModelConfig
from bident.model.hints import closest
from bident.model.proto import pb


class LabelFiles(ModelCheck):
    """``label_filename`` names nothing."""

    name = "label-files"
    title = "An output's label file is missing, unreadable, or has another number of lines than there are classes"
    cause = (
        "label_filename is looked for beside config.pbtxt, not in the version folder; line i is the label of class i"
    )

    def look(self, case: Case) -> Iterator[Seen]:
        if case.config is None or case.proto is None:
            return
        for index, tensor in enumerate(case.proto.output):
            if not tensor.label_filename:
                continue
            alone = pb.ModelConfig(name=case.name)
            alone.output.add().CopyFrom(tensor)
            try:
                lines = labels.load(case.directory, ModelConfig.from_proto(alone))[tensor.name]
            except ConfigError as error:
                yield self._missing(case, index, error.message)
                continue
            classes = case.config.outputs[tensor.name].dims[-1:]
            if classes and classes[0] not in (-1, 1, len(lines)):
                yield Seen(
                    case.directory / tensor.label_filename,
                    f"it has {len(lines)} lines, and output '{tensor.name}' has {classes[0]} classes",
                    "write one line for each class, in the order of the classes",
                    Weight.RISK,
                )

    def _missing(self, case: Case, index: int, problem: str) -> Seen:
        assert case.proto is not None
        wanted = case.proto.output[index].label_filename
        files = [entry.name for entry in entries(case.directory) if entry.is_file() and entry.name != "config.pbtxt"]
        near = closest(wanted, files)
        fix = None
        if near and near != wanted:
            step = Step("label_filename", quoted(near), (("output", index),))
            fix = config_fix(f"write label_filename: {quoted(near)}", case.config_path, [step])
        return Seen(case.config_path, problem, f"put the labels into {case.directory / wanted}", fix=fix)
