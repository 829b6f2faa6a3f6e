"""YOLOv8n, the smallest of the YOLOv8 detectors: depth 0.33, width 0.25, 80 classes, 640 x 640 pixels.

A backbone of C2f blocks, a neck that mixes three scales (strides 8, 16 and 32) up and down again,
and a head that says for each of the 8400 cells which class is there and how far its box reaches.
Batch normalization is folded into the convolutions: 3.15 million weights.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bident.zoo.networks.graph import Graph
from bident.zoo.synthetic import METADATA, SILU_GAIN, normal_weights

INPUT, OUTPUT = "images", "output0"
SIZE, CLASSES = 640, 80
STRIDES = (8, 16, 32)
CELLS = sum((SIZE // stride) ** 2 for stride in STRIDES)
_BINS = 16  # a box side is the mean of a distribution over 0..15 cells
# Neighbouring pixels of a photo differ by a fraction of its 0 to 1 range: the first filters, which see
# only differences, amplify them. The last ones keep logits where sigmoid and softmax are not saturated.
_STEM_CONTRAST, _HEAD_GAIN = 4.0, 0.25
_BOX_WIDTH, _CLASS_WIDTH = 64, 80


def save_synthetic(path: Path, seed: int) -> None:
    """Write the network with weights drawn from ``seed``."""
    net = _Network(seed)
    net.head(net.neck(*net.backbone(INPUT)))
    net.graph.save(path, {INPUT: [3, SIZE, SIZE]}, {OUTPUT: [4 + CLASSES, CELLS]}, METADATA)


class _Network:
    def __init__(self, seed: int) -> None:
        self.graph = Graph("yolov8n")
        self._random = np.random.default_rng(seed)

    def backbone(self, value: str) -> tuple[str, str, str]:
        """The picture at strides 8, 16 and 32, with 64, 128 and 256 channels."""
        value = self.conv(value, 3, 16, 3, stride=2, contrast=_STEM_CONTRAST)
        value = self.c2f(self.conv(value, 16, 32, 3, stride=2), 32, 32, repeats=1, shortcut=True)
        fine = self.c2f(self.conv(value, 32, 64, 3, stride=2), 64, 64, repeats=2, shortcut=True)
        middle = self.c2f(self.conv(fine, 64, 128, 3, stride=2), 128, 128, repeats=2, shortcut=True)
        coarse = self.c2f(self.conv(middle, 128, 256, 3, stride=2), 256, 256, repeats=1, shortcut=True)
        return fine, middle, self.pyramid_pooling(coarse, 256)

    def neck(self, fine: str, middle: str, coarse: str) -> list[tuple[str, int]]:
        """Each scale told what the others see; pairs of value and channels, finest first."""
        middle_down = self.c2f(self.concat(self.upsample(coarse), middle), 384, 128)
        fine_out = self.c2f(self.concat(self.upsample(middle_down), fine), 192, 64)
        middle_out = self.c2f(self.concat(self.conv(fine_out, 64, 64, 3, stride=2), middle_down), 192, 128)
        coarse_out = self.c2f(self.concat(self.conv(middle_out, 128, 128, 3, stride=2), coarse), 384, 256)
        return [(fine_out, 64), (middle_out, 128), (coarse_out, 256)]

    def head(self, scales: list[tuple[str, int]]) -> None:
        """``output0`` [N, 4 + classes, cells]: box centre x, y, width, height in pixels, then class scores."""
        boxes, scores = [], []
        for (value, channels), stride in zip(scales, STRIDES, strict=True):
            boxes.append(self.flat(self.branch(value, channels, _BOX_WIDTH, 4 * _BINS, 1.0), 4 * _BINS))
            # A cell is rarely an object: start each class at a low score, as training does.
            rarity = math.log(5 / CLASSES / (SIZE / stride) ** 2)
            scores.append(self.flat(self.branch(value, channels, _CLASS_WIDTH, CLASSES, rarity), CLASSES))
        box = self.decode(self.graph.node("Concat", *boxes, axis=2))
        score = self.graph.node("Sigmoid", self.graph.node("Concat", *scores, axis=2))
        self.graph.node("Concat", box, score, axis=1, output=OUTPUT)

    def branch(self, value: str, channels: int, width: int, outputs: int, bias: float) -> str:
        value = self.conv(self.conv(value, channels, width, 3), width, width, 3)
        weight = normal_weights(self._random, (outputs, width, 1, 1), _HEAD_GAIN)
        return self.graph.conv(value, weight, np.full(outputs, bias, np.float32))

    def decode(self, distances: str) -> str:
        """Boxes [N, 4, cells] from the distributions [N, 4 * bins, cells] over the distance to each side."""
        graph = self.graph
        shape = graph.constant(np.array([0, 4, _BINS, CELLS], np.int64))
        likely = graph.node("Softmax", graph.node("Reshape", distances, shape), axis=2)
        bins = graph.constant(np.arange(_BINS, dtype=np.float32).reshape(1, 1, _BINS, 1))
        axis = graph.constant(np.array([2], np.int64))
        sides = graph.node("ReduceSum", graph.node("Mul", likely, bins), axis, keepdims=0)
        left_top, right_bottom = graph.split(sides, [2, 2], axis=1)
        centres, strides = (graph.constant(array) for array in _grid())
        half = graph.constant(np.array(0.5, np.float32))
        shift = graph.node("Mul", graph.node("Sub", right_bottom, left_top), half)
        middle = graph.node("Add", centres, shift)
        extent = graph.node("Add", left_top, right_bottom)
        return graph.node("Mul", graph.node("Concat", middle, extent, axis=1), strides)

    def conv(self, value: str, inputs: int, outputs: int, size: int, *, stride: int = 1, contrast: float = 1.0) -> str:
        """Convolution and SiLU."""
        weight = normal_weights(self._random, (outputs, inputs, size, size), contrast * SILU_GAIN)
        value = self.graph.conv(value, weight, np.zeros(outputs, np.float32), stride=stride)
        return self.graph.node("Mul", value, self.graph.node("Sigmoid", value))

    def c2f(self, value: str, inputs: int, outputs: int, repeats: int = 1, shortcut: bool = False) -> str:
        """Half the channels go straight on, half through bottlenecks, and every step is kept."""
        hidden = outputs // 2
        parts = self.graph.split(self.conv(value, inputs, outputs, 1), [hidden, hidden], axis=1)
        for _ in range(repeats):
            inner = self.conv(self.conv(parts[-1], hidden, hidden, 3), hidden, hidden, 3)
            parts.append(self.graph.node("Add", parts[-1], inner) if shortcut else inner)
        return self.conv(self.concat(*parts), hidden * len(parts), outputs, 1)

    def pyramid_pooling(self, value: str, channels: int) -> str:
        """The fast spatial pyramid pooling (SPPF): maxima over 5, 9 and 13 cells side by side."""
        parts = [self.conv(value, channels, channels // 2, 1)]
        for _ in range(3):
            parts.append(self.graph.node("MaxPool", parts[-1], kernel_shape=[5, 5], strides=[1, 1], pads=[2, 2, 2, 2]))
        return self.conv(self.concat(*parts), channels * 2, channels, 1)

    def upsample(self, value: str) -> str:
        """Twice as wide and high, each cell repeated."""
        scales = self.graph.constant(np.array([1, 1, 2, 2], np.float32))
        return self.graph.node(
            "Resize",
            value,
            "",
            scales,
            mode="nearest",
            nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        )

    def concat(self, *values: str) -> str:
        """Channels side by side."""
        return self.graph.node("Concat", *values, axis=1)

    def flat(self, value: str, channels: int) -> str:
        """[N, channels, height, width] as [N, channels, cells]."""
        return self.graph.node("Reshape", value, self.graph.constant(np.array([0, channels, -1], np.int64)))


def _grid() -> tuple[NDArray[Any], NDArray[Any]]:
    """The centre [1, 2, cells] of each cell, in cells, and the stride [1, 1, cells] of each, in pixels."""
    centres, strides = [], []
    for stride in STRIDES:
        steps = np.arange(SIZE // stride, dtype=np.float32) + 0.5
        y, x = np.meshgrid(steps, steps, indexing="ij")
        centres.append(np.stack([x.ravel(), y.ravel()]))
        strides.append(np.full(x.size, stride, np.float32))
    return np.concatenate(centres, axis=1)[None], np.concatenate(strides)[None, None]
