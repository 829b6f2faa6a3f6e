"""EfficientNet-Lite0: inverted residual blocks without squeeze-and-excitation, ReLU6 throughout.

Tan and Le, "EfficientNet" (2019), in the variant that Google published for mobile CPUs. The weights
are a PyTorch state dict, the padding is TensorFlow's, where the network was trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bident.zoo.networks.graph import Graph

INPUT, OUTPUT, CLASSES = "input", "logits", 1000
_EPSILON = 1e-3  # of every batch normalization


class _Stage(NamedTuple):
    repeats: int
    stride: int
    width: int


_STAGES = (
    _Stage(1, 1, 16),
    _Stage(2, 2, 24),
    _Stage(2, 2, 40),
    _Stage(3, 2, 80),
    _Stage(3, 1, 112),
    _Stage(4, 2, 192),
    _Stage(1, 1, 320),
)


def save(path: Path, weights: Mapping[str, NDArray[Any]], facts: dict[str, str]) -> None:
    """Write the network with ``weights`` (a state dict; batch normalization is folded into the convolutions)."""
    net = _Network(weights)
    value = net.conv("input", "_conv_stem", "_bn0", stride=2)
    channels, block = 32, 0
    for stage in _STAGES:
        for repeat in range(stage.repeats):
            stride = stage.stride if repeat == 0 else 1
            inner = net.inverted_residual(value, f"_blocks.{block}.", stride)
            same_shape = stride == 1 and channels == stage.width
            value = net.graph.node("Add", value, inner) if same_shape else inner
            channels, block = stage.width, block + 1
    value = net.conv(value, "_conv_head", "_bn1")
    pooled = net.graph.node("Flatten", net.graph.node("GlobalAveragePool", value))
    weight, bias = net.graph.constant(weights["_fc.weight"]), net.graph.constant(weights["_fc.bias"])
    net.graph.node("Gemm", pooled, weight, bias, transB=1, output=OUTPUT)
    net.graph.save(path, {INPUT: [3, 224, 224]}, {OUTPUT: [CLASSES]}, facts)


class _Network:
    def __init__(self, weights: Mapping[str, NDArray[Any]]) -> None:
        self.graph = Graph("efficientnet_lite0")
        self._weights = weights
        self._limits = [self.graph.constant(np.array(limit, np.float32)) for limit in (0.0, 6.0)]

    def inverted_residual(self, value: str, prefix: str, stride: int) -> str:
        """Widen (except in the first block), filter each channel by itself, narrow again."""
        if f"{prefix}_expand_conv.weight" in self._weights:
            value = self.conv(value, f"{prefix}_expand_conv", f"{prefix}_bn0")
        value = self.conv(value, f"{prefix}_depthwise_conv", f"{prefix}_bn1", stride=stride, depthwise=True)
        return self.conv(value, f"{prefix}_project_conv", f"{prefix}_bn2", activate=False)

    def conv(
        self, value: str, name: str, norm: str, *, stride: int = 1, depthwise: bool = False, activate: bool = True
    ) -> str:
        kernel = self._weights[f"{name}.weight"]
        scale = self._weights[f"{norm}.weight"] / np.sqrt(self._weights[f"{norm}.running_var"] + _EPSILON)
        bias = self._weights[f"{norm}.bias"] - self._weights[f"{norm}.running_mean"] * scale
        folded = (kernel * scale[:, None, None, None]).astype(np.float32)
        groups = len(kernel) if depthwise else 1
        value = self.graph.conv(value, folded, bias.astype(np.float32), stride=stride, groups=groups, same_upper=True)
        return self.graph.node("Clip", value, *self._limits) if activate else value
