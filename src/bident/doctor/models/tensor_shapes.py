"""Datatypes, dimensions and batch sizes that do not fit the model file."""

from __future__ import annotations

from collections.abc import Iterator

from bident.doctor.check import Weight
from bident.doctor.models.case import Case, ModelCheck, Seen
from bident.doctor.models.config_edit import Step, config_fix
from bident.doctor.models.tensors import Pair, is_fixed, is_scalar_label, pairs, refusal, right_dims
from bident.model.proto import pb


class TensorDatatypes(ModelCheck):
    """``data_type`` differs from the file's."""

    name = "tensor-datatypes"
    title = "The configuration declares another datatype than the model file"
    cause = "A datatype is never converted on the way: clients send, and get, what the model file has"

    def look(self, case: Case) -> Iterator[Seen]:
        for pair in pairs(case):
            assert pair.known.datatype is not None
            right = pair.known.datatype.config_name
            word = pb.DataType.DESCRIPTOR.values_by_number.get(pair.tensor.data_type)
            if word is None or word.name != right:
                yield Seen(
                    case.config_path,
                    f"{pair.side} '{pair.tensor.name}' is {right} in {pair.file.path.name}, and "
                    f"{word.name if word else pair.tensor.data_type} in the configuration",
                    f"write data_type: {right}",
                    fix=config_fix(
                        f"write data_type: {right}", case.config_path, [Step("data_type", right, pair.where)]
                    ),
                )


class TensorShapes(ModelCheck):
    """``dims`` differ from the file's."""

    name = "tensor-shapes"
    title = "The configuration declares other dims than the model file"
    cause = (
        "With max_batch_size above 0, dims leave out the first dimension of the model file's shape; with 0 they are "
        "all of it"
    )

    def look(self, case: Case) -> Iterator[Seen]:
        batching = case.filled.max_batch_size > 0
        for pair in pairs(case):
            if batching and (is_fixed(pair) or is_scalar_label(pair.known, pair.tensor)):
                continue  # each has a check of its own
            problem, notes = refusal(case, _with_right_datatype(pair))
            if problem or (notes and case.target):
                right = right_dims(case, pair)
                yield Seen(
                    case.config_path,
                    problem or notes[0],
                    f"write dims: {right}",
                    fix=config_fix(f"write dims: {right}", case.config_path, _steps(case, pair, right)),
                )


def _with_right_datatype(pair: Pair) -> Pair:
    """So that the shape is judged even where the datatype is wrong, too."""
    tensor = type(pair.tensor)()
    tensor.CopyFrom(pair.tensor)
    assert pair.known.datatype is not None
    tensor.data_type = pb.DataType.Value(pair.known.datatype.config_name)
    return Pair(pair.file, pair.side, pair.index, tensor, pair.known)


def _steps(case: Case, pair: Pair, right: list[int]) -> list[Step]:
    steps = [Step("dims", str(right), pair.where)]
    if pair.tensor.HasField("reshape"):
        steps.append(Step("reshape", "", pair.where))
    if case.filled.max_batch_size > 0 and len(pair.known.dims) == 1:
        steps.append(Step("reshape", "{ shape: [ ] }", pair.where))
    return steps


class BatchDimension(ModelCheck):
    """``max_batch_size`` for a model that fixes its first dimension."""

    name = "batch-dimension"
    title = "max_batch_size is above 0, and the model file has no batch dimension"
    cause = (
        "Batches need a first dimension that is free in every input and output of the file. Exporters fix it at the "
        "size of the example unless told that it is dynamic"
    )

    def look(self, case: Case) -> Iterator[Seen]:
        if case.filled.max_batch_size < 1:
            return
        found = list(pairs(case))
        fixed = [pair for pair in found if is_fixed(pair) and refusal(case, _with_right_datatype(pair))[0]]
        if not fixed:
            return
        shapes = ", ".join(f"{pair.side} {pair.known}" for pair in fixed)
        declared = len(case.filled.input) + len(case.filled.output)
        yield Seen(
            case.config_path,
            f"max_batch_size is {case.filled.max_batch_size}, and {fixed[0].file.path.name} has {shapes}",
            "export the model with a dynamic batch axis (dynamic_axes or dynamic_shapes of torch.onnx.export), or set "
            "max_batch_size: 0 and let dims hold the whole shape",
            Weight.BROKEN,
            fix=config_fix("set max_batch_size: 0 and dims to the whole shape", case.config_path, _unbatched(found))
            if len(found) == declared and not case.filled.HasField("sequence_batching")
            else None,
        )


def _unbatched(found: list[Pair]) -> list[Step]:
    steps = [Step("max_batch_size", "0"), Step("dynamic_batching")]
    for pair in found:
        steps += [Step("dims", str(list(pair.known.dims) or [1]), pair.where), Step("reshape", "", pair.where)]
    return steps
