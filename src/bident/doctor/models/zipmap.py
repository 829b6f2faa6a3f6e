"""A classifier's probabilities as a list of dictionaries, which is what exporters make of them by default."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bident.backends.onnx.zipmap import without_zipmap
from bident.doctor import treatment
from bident.doctor.check import Fix, Weight
from bident.doctor.models.case import Case, ModelCheck, Seen
from bident.doctor.models.onnx_file import onnx_files


class ZipMap(ModelCheck):
    """``ZipMap`` at the end of an ONNX classifier."""

    name = "onnx-zipmap"
    title = "An ONNX output is a list of dictionaries (ZipMap) instead of a tensor"
    of_files = True
    cause = (
        "skl2onnx and onnxmltools end a classifier with ZipMap unless told otherwise. Triton refuses such a model: "
        "Unsupported ONNX Type 'ONNX_TYPE_SEQUENCE'. Bident serves the table that goes into it"
    )

    def look(self, case: Case) -> Iterator[Seen]:
        for file in onnx_files(case):
            outputs = [
                value.name
                for value in file.graph.output
                if value.name in file.made_by and file.made_by[value.name].op_type == "ZipMap"
            ]
            if outputs:
                yield Seen(
                    file.path,
                    f"output {', '.join(map(repr, outputs))} is made by ZipMap",
                    "export again with options={'zipmap': False} (skl2onnx) or zipmap=False (onnxmltools)",
                    Weight.BROKEN if case.target else Weight.RISK,
                    fix=Fix("write the model with the same numbers as a tensor", partial(_rewrite, file.path)),
                )


def _rewrite(path: Path) -> None:
    rewritten = without_zipmap(path)
    if rewritten is not None:
        treatment.replace_file(path, rewritten.content)
