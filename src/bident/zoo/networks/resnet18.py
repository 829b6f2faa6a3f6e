"""ResNet-18, version 1, as the ONNX Model Zoo's resnet18-v1-7 has it (exported from MXNet).

He et al., "Deep Residual Learning for Image Recognition" (2015): four stages of two basic blocks,
11.7 million weights.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bident.zoo.networks.graph import Graph
from bident.zoo.synthetic import METADATA, RELU_GAIN, normal_weights

INPUT, OUTPUT, CLASSES = "data", "resnetv15_dense0_fwd", 1000
_STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
# What each block adds is scaled down, or the sum would double its variance from block to block.
_RESIDUAL_SCALE = 0.3


def save_synthetic(path: Path, seed: int) -> None:
    """Write the network with weights drawn from ``seed``."""
    graph, random = Graph("resnet18_v1"), np.random.default_rng(seed)
    value = graph.conv(INPUT, normal_weights(random, (64, 3, 7, 7), RELU_GAIN), stride=2)
    value = graph.node("Relu", _batch_norm(graph, random, value, 64))
    value = graph.node("MaxPool", value, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for width, stride in _STAGES:
        value = _basic_block(graph, random, value, channels, width, stride)
        value = _basic_block(graph, random, value, width, width, 1)
        channels = width
    pooled = graph.node("Flatten", graph.node("GlobalAveragePool", value))
    weight = graph.constant(normal_weights(random, (CLASSES, channels)))
    bias = graph.constant(random.normal(0.0, 0.1, CLASSES).astype(np.float32))
    graph.node("Gemm", pooled, weight, bias, transB=1, output=OUTPUT)
    graph.save(path, {INPUT: [3, 224, 224]}, {OUTPUT: [CLASSES]}, METADATA)


def _basic_block(graph: Graph, random: np.random.Generator, value: str, channels: int, width: int, stride: int) -> str:
    """Two 3x3 convolutions and the shortcut past them, itself a 1x1 convolution where the shape changes."""
    shortcut = value
    if stride != 1 or channels != width:
        projected = graph.conv(value, normal_weights(random, (width, channels, 1, 1)), stride=stride)
        shortcut = _batch_norm(graph, random, projected, width)
    inner = graph.conv(value, normal_weights(random, (width, channels, 3, 3), RELU_GAIN), stride=stride)
    inner = graph.node("Relu", _batch_norm(graph, random, inner, width))
    inner = graph.conv(inner, normal_weights(random, (width, width, 3, 3), RELU_GAIN))
    inner = _batch_norm(graph, random, inner, width, scale=_RESIDUAL_SCALE)
    return graph.node("Relu", graph.node("Add", shortcut, inner))


def _batch_norm(graph: Graph, random: np.random.Generator, value: str, channels: int, scale: float = 1.0) -> str:
    ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    # Random offsets, so that even the all-zero image excites every layer and its answer tests them all.
    offsets = random.normal(0.0, 0.3, channels).astype(np.float32)
    statistics = [graph.constant(array) for array in (ones * scale, offsets, zeros, ones)]
    return graph.node("BatchNormalization", value, *statistics, epsilon=1e-5)
