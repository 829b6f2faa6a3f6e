"""A small notation for ONNX graphs: values are names, every call adds a node and returns its output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

_OPSET = 17
_IR_VERSION = 8
_PRODUCER = "bident.zoo"


class Graph:
    """An ONNX graph under construction, all FP32 in and out, first axis of each the batch (``N``)."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def constant(self, array: NDArray[Any]) -> str:
        """A weight or other fixed tensor; returns its name."""
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def node(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add a node with one output, called ``output`` or by its operator and position."""
        name = output or f"{operator}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, list(inputs), [name], name=name, **attributes))
        return name

    def split(self, value: str, sizes: list[int], axis: int) -> list[str]:
        """Cut ``value`` along ``axis`` into parts of ``sizes``."""
        names = [f"Split_{len(self._nodes)}_{part}" for part in range(len(sizes))]
        lengths = self.constant(np.array(sizes, np.int64))
        self._nodes.append(helper.make_node("Split", [value, lengths], names, axis=axis))
        return names

    def conv(
        self,
        value: str,
        weight: NDArray[Any],
        bias: NDArray[Any] | None = None,
        *,
        stride: int = 1,
        groups: int = 1,
        same_upper: bool = False,
    ) -> str:
        """A 2-D convolution with weights [out, in/groups, k, k].

        Pads k//2 on each side, as most networks do, or like TensorFlow's SAME with ``same_upper``.
        """
        size = weight.shape[2]
        padding: dict[str, Any] = {"auto_pad": "SAME_UPPER"} if same_upper else {"pads": [size // 2] * 4}
        inputs = [value, self.constant(weight)] + ([] if bias is None else [self.constant(bias)])
        return self.node("Conv", *inputs, kernel_shape=[size, size], strides=[stride, stride], group=groups, **padding)

    def save(
        self, path: Path, inputs: dict[str, list[int]], outputs: dict[str, list[int]], facts: dict[str, str]
    ) -> None:
        """Check the graph and write it. Shapes are without the batch axis; ``facts`` become metadata."""
        graph = helper.make_graph(
            self._nodes,
            self._name,
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", *dims]) for name, dims in inputs.items()],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", *dims]) for name, dims in outputs.items()],
            self._constants,
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", _OPSET)],
            ir_version=_IR_VERSION,
            producer_name=_PRODUCER,
        )
        helper.set_model_props(model, facts)
        onnx.checker.check_model(model)
        path.write_bytes(model.SerializeToString(deterministic=True))
