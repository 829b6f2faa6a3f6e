"""A label per row that has no dimension of its own, declared as if it had one."""

from __future__ import annotations

from collections.abc import Iterator

from bident.doctor.models.case import Case, ModelCheck, Seen
from bident.doctor.models.config_edit import Step, config_fix
from bident.doctor.models.onnx_file import onnx_files
from bident.doctor.models.tensors import SIDES, is_scalar_label


class ScalarLabels(ModelCheck):
    """``dims: [ 1 ]`` for what the model gives as ``[N]``."""

    name = "scalar-label"
    title = "The model gives one number per row, [N], and the configuration says dims: [ 1 ]"
    cause = (
        "A configuration cannot say dims: [ ], so a label without a dimension of its own needs a reshape from the 1 "
        "that clients see to the nothing that the model has"
    )

    def look(self, case: Case) -> Iterator[Seen]:
        if case.proto is None or case.proto.max_batch_size < 1:
            return
        file = next(onnx_files(case), None)
        if file is not None:
            declared = {**file.signature.inputs, **file.signature.outputs}
            for side in SIDES:
                for index, tensor in enumerate(getattr(case.proto, side)):
                    known = declared.get(tensor.name)
                    if known is not None and known.is_tensor and is_scalar_label(known, tensor):
                        yield Seen(
                            case.config_path,
                            f"{side} '{tensor.name}' is [-1] in {file.path.name}, and dims: [ 1 ] with a batch "
                            "dimension in front, [-1,1], in the configuration",
                            f"add reshape {{ shape: [ ] }} to {side} '{tensor.name}'",
                            fix=config_fix(
                                f"add reshape {{ shape: [ ] }} to {side} '{tensor.name}'",
                                case.config_path,
                                [Step("reshape", "{ shape: [ ] }", ((side, index),))],
                            ),
                        )
