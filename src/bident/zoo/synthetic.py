"""Seeded random weights, for architectures whose trained weights cannot be had here.

They cost what the trained network costs and answer in its shapes, but they mean nothing: whatever
shows such a model says so, through the two marks below.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bident.model.parameters import SYNTHETIC_WEIGHTS

_STATEMENT = "true: seeded random weights, not a trained model"

METADATA = {SYNTHETIC_WEIGHTS: _STATEMENT}
"""The mark in an ONNX file."""

CONFIG_MARK = f"""
# These are NOT trained weights. The trained ones could not be had when the folder was built, so the
# same network was filled with random numbers from a fixed seed: shapes, names and speed are right,
# answers mean nothing. `bident zoo build NAME --force` tries again.
parameters {{
  key: "{SYNTHETIC_WEIGHTS}"
  value {{ string_value: "{_STATEMENT}" }}
}}
"""
"""The mark in a ``config.pbtxt``."""


def member_mark(member: str) -> str:
    """The mark in the ``config.pbtxt`` of an ensemble whose step ``member`` has such weights."""
    return f"""
# The weights of {member} are NOT trained: answers mean nothing. Once it has real ones
# (`bident zoo build {member} --force`), `bident zoo build` makes this folder anew.
parameters {{
  key: "{SYNTHETIC_WEIGHTS}"
  value {{ string_value: "true: the weights of its step '{member}' are seeded random numbers" }}
}}
"""


RELU_GAIN = 1 / math.sqrt(1 / 2 - 1 / (2 * math.pi))
SILU_GAIN = 1 / math.sqrt(0.3129)
"""One over the standard deviation of an activation's output where its input is standard normal."""


def normal_weights(random: np.random.Generator, shape: tuple[int, ...], gain: float = 1.0) -> NDArray[np.float32]:
    """Normal weights [out, in, ...] that keep activations at their size through any number of layers.

    They are scaled by ``gain``/sqrt(fan-in), and each filter sums to zero: activation functions
    leave a positive mean, which would otherwise grow from layer to layer until outputs saturate.
    """
    weights = random.standard_normal(shape, np.float32)
    weights -= weights.mean(axis=tuple(range(1, len(shape))), keepdims=True)
    return weights * np.float32(gain / math.sqrt(math.prod(shape[1:])))
