"""``iris_sklearn``: a scikit-learn random forest as ONNX, its probabilities a plain tensor."""

from __future__ import annotations

from pathlib import Path

from bident.zoo.folder import write_config
from bident.zoo.iris import export_forest, setosa_question
from bident.zoo.recipe import Facts, Question, Recipe, Report

_CONFIG = """
# Which iris is it? A random forest of scikit-learn, exported by skl2onnx with `zipmap: False`.
backend: "onnxruntime"
max_batch_size: 128
input  [ { name: "X", data_type: TYPE_FP32, dims: [ 4 ] } ]
output [
  # The model answers one number a row, [N]. Clients are promised [N, 1]: dims [ 1 ], which the empty
  # reshape takes away again on the model's side.
  { name: "label",         data_type: TYPE_INT64, dims: [ 1 ], reshape: { shape: [ ] } },
  { name: "probabilities", data_type: TYPE_FP32,  dims: [ 3 ], label_filename: "iris_labels.txt" }
]
instance_group [ { count: 1, kind: KIND_CPU } ]
# A request may wait up to 2 ms for company, but only while more are on their way.
dynamic_batching { max_queue_delay_microseconds: 2000 }
"""


def _write(folder: Path, report: Report) -> Facts:
    report("training and exporting a random forest", None)
    write_config(folder, _CONFIG)
    return export_forest(folder, zipmap=False)


def _questions(_facts: Facts) -> list[Question]:
    return setosa_question("label", "probabilities")


RECIPE = Recipe(
    name="iris_sklearn",
    summary="iris species, random forest as ONNX",
    backend="onnxruntime",
    version=1,
    write=_write,
    questions=_questions,
)
