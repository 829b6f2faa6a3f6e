"""Cuts the middle out of a picture and normalises it, as image classifiers are tested."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image

_SHARE = 0.875
"""How much of the shorter side is kept: 224 of 256."""


def crop(picture: Any, size: int, mean: tuple[float, ...], std: tuple[float, ...]) -> np.ndarray[Any, Any]:
    """The middle square of a picture: RGB, each value (0 to 255) less ``mean``, over ``std``. FP32 [3, size, size].

    ``mean`` and ``std`` are one number, or one for each channel. Raises PictureError if the picture cannot
    be decoded.
    """
    side = _SHARE * min(picture.width, picture.height)
    seen = picture.middle(side, side, (size, size), Image.Resampling.BICUBIC)
    pixels: np.ndarray[Any, Any] = seen.transpose(2, 0, 1).astype(np.float32, order="C")
    pixels -= np.array(mean, np.float32).reshape(-1, 1, 1)
    pixels /= np.array(std, np.float32).reshape(-1, 1, 1)
    return pixels
