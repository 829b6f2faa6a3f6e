"""Removes ZipMap, which turns a classifier's table of probabilities into a list of dictionaries.

scikit-learn's and LightGBM's exporters add it by default; no inference protocol can carry its
``seq(map(...))``. The FP32 ``[N, C]`` tensor that goes into it holds the same numbers, its columns
in the order of the class labels, so that tensor takes the output's place and name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

_STANDARD_DOMAIN = ""
_IDENTITY_OPSET = 13
_CLASSIFIERS = frozenset({"LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier"})


@dataclass(frozen=True)
class Rewritten:
    """A model whose ZipMaps are gone: its serialized form, and per output the class of each column."""

    content: bytes
    classes: dict[str, tuple[str, ...]]


def without_zipmap(path: Path) -> Rewritten | None:
    """The model in ``path`` with each output made by a ZipMap as a plain tensor; None if there is none.

    Weights in external files stay there. Imports ``onnx`` (slow, hence only here).
    """
    import onnx

    model = onnx.load(path, load_external_data=False)
    graph = model.graph
    made_by = {name: node for node in graph.node for name in node.output}
    classes: dict[str, tuple[str, ...]] = {}
    for output in graph.output:
        node = made_by.get(output.name)
        if node is not None and node.op_type == "ZipMap":
            labels = _labels(node)
            _become_identity(node)
            output.type.CopyFrom(onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [None, len(labels)]))
            classes[output.name] = labels
    if not classes:
        return None
    for output in graph.output:
        _free_label_batch(output, made_by)
    if not any(entry.domain == _STANDARD_DOMAIN for entry in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid(_STANDARD_DOMAIN, _IDENTITY_OPSET))
    return Rewritten(model.SerializeToString(), classes)


def _labels(node: Any) -> tuple[str, ...]:
    """The class labels of a ZipMap, which are its columns in order."""
    attributes = {attribute.name: attribute for attribute in node.attribute}
    if "classlabels_strings" in attributes and attributes["classlabels_strings"].strings:
        return tuple(label.decode() for label in attributes["classlabels_strings"].strings)
    return tuple(str(label) for label in attributes["classlabels_int64s"].ints)


def _become_identity(node: Any) -> None:
    # A rename of the tensor would do too, but it may also be an output itself or feed other nodes;
    # ONNX Runtime removes the Identity where it can.
    node.op_type, node.domain = "Identity", _STANDARD_DOMAIN
    del node.attribute[:]


def _free_label_batch(output: Any, made_by: dict[str, Any]) -> None:
    """Free the batch dimension of a class label that onnxmltools declares as ``[1]`` whatever the batch."""
    node = made_by.get(output.name)
    while node is not None and node.op_type in ("Identity", "Cast"):
        node = made_by.get(node.input[0])
    dims = output.type.tensor_type.shape.dim
    if node is not None and node.op_type in _CLASSIFIERS and len(dims) == 1 and dims[0].dim_value == 1:
        dims[0].Clear()
