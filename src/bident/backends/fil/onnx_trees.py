"""A forest, its postprocessing and the answer as one ONNX graph, so that one call does it all."""

from __future__ import annotations

from typing import Any

import numpy as np

from bident.backends.fil.answers import Answer, Kind
from bident.backends.fil.forest import Forest, Postprocess
from bident.backends.fil.protobuf import block, floats, integer, integers

SCORES = "scores"
"""Name of the graph's second output: the scores before they became an answer."""

_OPSET, _ML_OPSET, _IR_VERSION = 17, 3, 8
_FLOAT = 1  # TensorProto.DataType


class _Graph:
    """An ONNX graph under construction: each operator's result feeds the next."""

    def __init__(self, source: str) -> None:
        self._nodes: list[tuple[str, str, tuple[str, ...], dict[str, Any]]] = []
        self._results: list[str] = []
        self._constants: list[float] = []
        self.last = source

    def constant(self, value: float) -> str:
        """A float32 constant of shape [1]."""
        self._constants.append(value)
        return f"constant_{len(self._constants) - 1}"

    def apply(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Append ``operator``, by default on the last result; returns (and remembers) its result's name."""
        self._nodes.append((operator, domain, inputs or (self.last,), attributes))
        self.last = f"{operator}_{len(self._nodes)}"
        self._results.append(self.last)
        return self.last

    def name_last(self, name: str) -> None:
        """Rename the last result, which nothing has read yet."""
        self._results[-1] = self.last = name

    def model(self, inputs: dict[str, int], outputs: dict[str, int]) -> bytes:
        """The whole ModelProto; ``inputs`` and ``outputs`` map names to widths of float32 [N, width]."""
        nodes = [_node(*node, result) for node, result in zip(self._nodes, self._results, strict=True)]
        constants = [
            integer(1, 1) + integer(2, _FLOAT) + floats(4, [value]) + block(8, f"constant_{index}")
            for index, value in enumerate(self._constants)
        ]
        graph = b"".join(
            [
                *(block(1, node) for node in nodes),
                block(2, "forest"),
                *(block(5, constant) for constant in constants),
                *(block(11, _tensor(name, width)) for name, width in inputs.items()),
                *(block(12, _tensor(name, width)) for name, width in outputs.items()),
            ]
        )
        opsets = block(8, integer(2, _OPSET)) + block(8, block(1, "ai.onnx.ml") + integer(2, _ML_OPSET))
        return integer(1, _IR_VERSION) + block(2, "bident") + block(7, graph) + opsets


def _node(operator: str, domain: str, inputs: tuple[str, ...], attributes: dict[str, Any], result: str) -> bytes:
    names = b"".join(block(1, name) for name in inputs)
    described = b"".join(block(5, block(1, name) + _attribute(value)) for name, value in attributes.items())
    return names + block(2, result) + block(4, operator) + described + block(7, domain)


def _attribute(value: Any) -> bytes:
    """The value of an AttributeProto and its type."""
    if isinstance(value, str):
        return block(4, value) + integer(20, 3)
    if isinstance(value, int):
        return integer(3, value) + integer(20, 2)
    if isinstance(value, list):
        encoded = {text: block(9, text) for text in set(value)}
        return b"".join([encoded[text] for text in value]) + integer(20, 8)
    if value.dtype.kind == "f":
        return floats(7, value) + integer(20, 6)
    return integers(8, value) + integer(20, 7)


def _tensor(name: str, width: int) -> bytes:
    shape = block(1, block(2, "N")) + block(1, integer(1, width))
    return block(1, name) + block(2, block(1, integer(1, _FLOAT) + block(2, shape)))


def onnx_trees(forest: Forest, answer: Answer, input_name: str, output_name: str) -> bytes:
    """The ONNX model: ``input_name`` [N, features] -> ``output_name`` [N, width].

    Where the answer is not the scores themselves, these are a second output, SCORES [N, classes].

    ``forest`` must be plain. Raises KeyError for a postprocessor that has no counterpart here.
    """
    graph = _Graph(input_name)
    outputs = {output_name: answer.width}
    graph.apply("TreeEnsembleRegressor", domain="ai.onnx.ml", **_trees(forest))
    _POSTPROCESS[forest.postprocess.name](graph, forest.postprocess)
    if answer.kind is not Kind.SCORES:
        graph.name_last(SCORES)
        outputs[SCORES] = forest.classes
        _answer(graph, answer)
    graph.name_last(output_name)
    return graph.model({input_name: forest.features}, outputs)


def _trees(forest: Forest) -> dict[str, Any]:
    leaf = forest.leaf
    sizes = np.diff(forest.offsets)
    tree = np.repeat(np.arange(forest.trees), sizes)
    node = np.arange(len(leaf)) - np.repeat(forest.offsets[:-1], sizes)
    where = np.flatnonzero(leaf)
    width = forest.values.shape[1]
    vote = forest.tree_class[tree[where]][:, None] if width == 1 else np.arange(width)[None, :]
    return {
        "n_targets": forest.classes,
        "aggregate_function": "SUM",
        "post_transform": "NONE",
        "base_values": forest.base_scores,
        "nodes_treeids": tree,
        "nodes_nodeids": node,
        "nodes_featureids": forest.feature,
        "nodes_values": np.where(leaf, np.float32(0), forest.threshold),
        "nodes_modes": ["LEAF" if is_leaf else "BRANCH_LT" for is_leaf in leaf.tolist()],
        "nodes_truenodeids": np.maximum(forest.left, 0),
        "nodes_falsenodeids": np.maximum(forest.right, 0),
        "nodes_missing_value_tracks_true": (forest.default_left & ~leaf).astype(np.int64),
        "target_treeids": np.repeat(tree[where], width),
        "target_nodeids": np.repeat(node[where], width),
        "target_ids": np.maximum(np.broadcast_to(vote, (len(where), width)), 0).reshape(-1),
        "target_weights": forest.values[where].reshape(-1),
    }


def _sigmoid(graph: _Graph, how: Postprocess) -> None:
    if how.sigmoid_alpha != 1:
        graph.apply("Mul", graph.last, graph.constant(how.sigmoid_alpha))
    graph.apply("Sigmoid")


def _signed_square(graph: _Graph, _: Postprocess) -> None:
    graph.apply("Mul", graph.last, graph.apply("Abs", graph.last))


def _hinge(graph: _Graph, _: Postprocess) -> None:
    _above(graph, 0.0)


def _standard_ratio(graph: _Graph, how: Postprocess) -> None:
    graph.apply("Mul", graph.last, graph.constant(-1 / how.ratio_c))
    graph.apply("Pow", graph.constant(2.0), graph.last)


def _operators(*names: str) -> Any:
    def append(graph: _Graph, _: Postprocess) -> None:
        for name in names:
            graph.apply(name)

    return append


_POSTPROCESS = {
    "identity": _operators(),
    "identity_multiclass": _operators(),
    "sigmoid": _sigmoid,
    "multiclass_ova": _sigmoid,
    "softmax": lambda graph, _: graph.apply("Softmax", graph.last, axis=1),
    "exponential": _operators("Exp"),
    "signed_square": _signed_square,
    "hinge": _hinge,
    "logarithm_one_plus_exp": _operators("Softplus"),
    "exponential_standard_ratio": _standard_ratio,
}


def _above(graph: _Graph, threshold: float) -> None:
    graph.apply("Greater", graph.last, graph.constant(threshold))
    _to_float(graph)


def _to_float(graph: _Graph) -> None:
    graph.apply("Cast", to=1)


def _answer(graph: _Graph, answer: Answer) -> None:
    scores = graph.last
    if answer.kind is Kind.ABOVE_THRESHOLD:
        _above(graph, answer.threshold)
    elif answer.kind is Kind.BOTH_CLASSES:
        graph.apply("Concat", graph.apply("Sub", graph.constant(1.0), scores), scores, axis=1)
    elif answer.kind is Kind.LARGEST:
        graph.apply("Relu")
        graph.apply("ArgMax", axis=1, keepdims=1)
        _to_float(graph)
