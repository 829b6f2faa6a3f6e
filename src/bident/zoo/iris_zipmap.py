"""``iris_zipmap``: the forest of ``iris_sklearn`` as skl2onnx exports it unless told otherwise."""

from __future__ import annotations

from pathlib import Path

from bident.zoo.folder import write_config
from bident.zoo.iris import export_forest, setosa_question
from bident.zoo.recipe import Facts, Question, Recipe, Report

_CONFIG = """
# The forest of iris_sklearn, exported without `zipmap: False`: its last node, ZipMap, turns the
# probabilities into a list of dictionaries, which no tensor protocol can carry. Triton refuses such
# a file ("Unsupported ONNX Type 'ONNX_TYPE_SEQUENCE'"); Bident serves the tensor in front of the
# ZipMap, columns in class order, and says so in its log. The two names are skl2onnx's.
backend: "onnxruntime"
max_batch_size: 128
input  [ { name: "X", data_type: TYPE_FP32, dims: [ 4 ] } ]
output [
  { name: "output_label",       data_type: TYPE_INT64, dims: [ 1 ], reshape: { shape: [ ] } },
  { name: "output_probability", data_type: TYPE_FP32,  dims: [ 3 ], label_filename: "iris_labels.txt" }
]
instance_group [ { count: 1, kind: KIND_CPU } ]
dynamic_batching { max_queue_delay_microseconds: 2000 }
"""


def _write(folder: Path, report: Report) -> Facts:
    report("training and exporting a random forest", None)
    write_config(folder, _CONFIG)
    return export_forest(folder, zipmap=True)


def _questions(_facts: Facts) -> list[Question]:
    return setosa_question("output_label", "output_probability")


RECIPE = Recipe(
    name="iris_zipmap",
    summary="the same, exported with ZipMap",
    backend="onnxruntime",
    version=1,
    write=_write,
    questions=_questions,
)
