"""Puts a whole picture, in its proportions, into the square that a YOLO network looks at."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image

_GREY = np.float32(114 / 255)
"""What YOLO networks have been trained to see around a picture."""
_WHITE = np.float32(255)


def letterbox(picture: Any, size: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The picture, as large as it fits, in the middle of a grey square of ``size`` pixels, RGB from 0 to 1.

    Returns the square, FP32 [3, size, size], and where the picture lies in it, FP32 [6]: left and top
    edge in pixels of the square, the size of one such pixel in pixels of the picture (x, y), and the
    picture's width and height. Raises PictureError if the picture cannot be decoded.
    """
    scale = size / max(picture.width, picture.height)
    width, height = (max(1, round(side * scale)) for side in (picture.width, picture.height))
    seen = picture.middle(picture.width, picture.height, (width, height), Image.Resampling.BILINEAR)
    left, top = (size - width) // 2, (size - height) // 2
    square = np.empty((3, size, size), np.float32)
    square[:, :top] = square[:, top + height :] = _GREY
    square[:, :, :left] = square[:, :, left + width :] = _GREY
    np.divide(seen.transpose(2, 0, 1), _WHITE, out=square[:, top : top + height, left : left + width])
    placement = [left, top, picture.width / width, picture.height / height, picture.width, picture.height]
    return square, np.array(placement, np.float32)
