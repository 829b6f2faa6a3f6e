"""ONNX models whose weights are missing, or that are too new for the runtime that is to load them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bident.backends.onnx.modelfile import weight_file_problems
from bident.doctor import treatment
from bident.doctor.check import Fix
from bident.doctor.models.case import Case, ModelCheck, Seen
from bident.doctor.models.onnx_file import OnnxFile, onnx_files, read_onnx

_NEWEST_TYPES = {9: 20, 10: 22, 11: 23, 12: 24}
"""The highest number of an element type that each IR version has (``TensorProto.DataType``)."""


class WeightFiles(ModelCheck):
    """External data of an ONNX model."""

    name = "onnx-weight-files"
    title = "An ONNX model keeps its weights in another file, which is missing or cut short"
    of_files = True
    cause = "Large models have their weights beside the .onnx file, under a name that is written in it: copy both"

    def look(self, case: Case) -> Iterator[Seen]:
        for file in onnx_files(case):
            try:
                problems = list(dict.fromkeys(weight_file_problems(file.path, file.graph)))
            except (ValueError, OSError) as error:
                problems = [f"its weight files cannot be found: {error}"]
            for problem in problems[:1]:
                seen, _, cure = problem.partition(": ")
                yield Seen(file.path, seen, cure or "export it again")


class OnnxVersion(ModelCheck):
    """IR version and opset."""

    name = "onnx-version"
    title = "An ONNX model is newer than the ONNX Runtime of the server that is to load it"
    of_files = True
    cause = "Exporters write the newest opset and IR version they know, and a runtime refuses those that came after it"

    def look(self, case: Case) -> Iterator[Seen]:
        for file in onnx_files(case):
            limits = case.target.onnx if case.target else _installed()
            if limits is None:
                continue
            highest_ir, highest_opset = limits
            too_new = file.model.ir_version > highest_ir
            if too_new or file.opset > highest_opset:
                yield Seen(
                    file.path,
                    f"it has IR version {file.model.ir_version} and opset {file.opset}; {_server(case)} takes "
                    f"IR version {highest_ir} and opset {highest_opset} at most",
                    f"export it with opset_version={highest_opset} (torch.onnx.export) or target_opset={highest_opset} "
                    "(skl2onnx), or take a newer server",
                    fix=_fix(file, highest_ir) if file.opset <= highest_opset else None,
                )


def _server(case: Case) -> str:
    runtime = case.target.runtime if case.target else None
    return f"ONNX Runtime {'.'.join(map(str, runtime))} of {case.target}" if runtime else "the ONNX Runtime here"


def _installed() -> tuple[int, int]:
    """What the installed ``onnx`` knows, which is of about ONNX Runtime's age."""
    import onnx

    return int(onnx.IR_VERSION), int(onnx.defs.onnx_opset_version())


def _fix(file: OnnxFile, highest: int) -> Fix | None:
    """An older IR version differs in nothing but what may be in the file: new element types."""
    types = {tensor.data_type for tensor in file.graph.initializer}
    types |= {value.type.tensor_type.elem_type for value in (*file.graph.input, *file.graph.output)}
    if max(types, default=0) > _NEWEST_TYPES.get(highest, 0):
        return None
    return Fix(f"write IR version {highest} into the file", partial(_lower, file.path, highest))


def _lower(path: Path, version: int) -> None:
    file = read_onnx(path)
    if file is not None:
        import onnx

        model = onnx.ModelProto()
        model.CopyFrom(file.model)
        model.ir_version = version
        treatment.replace_file(path, model.SerializeToString())
