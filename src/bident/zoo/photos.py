"""Photographs that ship inside the scikit-image package: real input without a download."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bident.errors import Code, ServeError
from bident.zoo.extras import need


def photo_file(name: str) -> bytes:
    """The file of photograph ``name`` as it is."""
    return _path(name).read_bytes()


def photo(name: str, size: int) -> NDArray[Any]:
    """The middle square of photograph ``name``, ``size`` pixels wide: FP32 [3, size, size], RGB, 0 to 255."""
    image_module = need("PIL.Image")
    with image_module.open(_path(name)) as image:
        width, height = image.size
        side = min(width, height)
        left, top = (width - side) // 2, (height - side) // 2
        square = image.convert("RGB").crop((left, top, left + side, top + side))
        pixels = np.asarray(square.resize((size, size), image_module.Resampling.BICUBIC), np.float32)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _path(name: str) -> Path:
    """The file inside scikit-image, which is found but not imported (that takes half a second)."""
    package = find_spec("skimage")
    folders = package.submodule_search_locations if package else None
    path = Path(folders[0], "data", name) if folders else None
    if path is None or not path.is_file():
        raise ServeError(Code.UNAVAILABLE, f"the photo '{name}' comes with scikit-image: pip install 'bident[zoo]'")
    return path
