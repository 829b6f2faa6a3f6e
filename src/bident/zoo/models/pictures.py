"""Reads the pictures that clients send, JPEG or PNG, as upright RGB pixels of the size that a network wants.

This file lies beside the ``model.py`` that imports it. It needs numpy and Pillow.
"""

from __future__ import annotations

import base64
import binascii
import io
import math
import struct
import zlib

import numpy as np
from PIL import Image, UnidentifiedImageError

_FORMATS = ("JPEG", "PNG")
"""Only these decoders ever see a client's bytes: some of Pillow's others run programs or reserve gigabytes."""

_DAMAGE = (OSError, SyntaxError, ValueError, IndexError, TypeError, OverflowError, EOFError, struct.error, zlib.error)
"""What Pillow raises on files that are cut short or mangled."""

_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""EXIF: how the camera was held, and how the stored pixels become upright."""
_FIRST_LYING = 5
"""From this orientation on, width and height change places."""


_SPARE = 2
"""How much larger than needed a picture still is before it is scaled: enough that the scaling decides how it looks."""
_TILE = 1024
"""Side in pixels of the parts in which a picture's colours are converted: copies of it all would cost gigabytes."""
_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8"
_AS_TEXT = (b"/9j/", b"iVBOR", b"data:image/")
"""How a JPEG and a PNG begin in base64, and a data: URL of either."""


class PictureError(ValueError):
    """What is wrong with a picture, in words for whoever sent it."""


class Picture:
    """A picture of which only the header has been read. ``width`` and ``height`` are those of the upright picture."""

    def __init__(self, data: bytes, max_pixels: int) -> None:
        """Read the header. Raises PictureError if it is no picture, or has more pixels than ``max_pixels``.

        ``data`` may be base64 text, plain or as a ``data:`` URL: JSON cannot hold a file's own bytes.
        What decoding holds for a time, in bytes for each pixel of the file: 4 (Pillow's RGB has a fourth one), 8 for
        transparent ones of less than twice the size needed, up to 12 for progressive JPEGs, and next to none for
        other JPEGs of many times the size needed.
        """
        data = _bytes_of(data)
        image = _open(data)
        # Checked before anything is decoded: a small file can claim to hold billions of pixels.
        if image.width * image.height > max_pixels:
            raise PictureError(
                f"it has {image.width} x {image.height} pixels, and at most {max_pixels} are taken: scale it down"
            )
        self._data = data
        self._orientation = _orientation(image, data)
        self.width, self.height = self._turned(*image.size)

    def middle(self, width: float, height: float, size: tuple[int, int], resample: Image.Resampling) -> np.ndarray:
        """The middle ``width`` x ``height`` pixels, scaled to ``size`` (width, height): UINT8 [height, width, 3].

        Raises PictureError if the pixels cannot be decoded.
        """
        part, target = self._turned(width, height), self._turned(*size)
        image = _open(self._data)
        stored = image.size
        # A JPEG can be decoded at 1/2, 1/4 or 1/8 of its size, which takes a fraction of the time. Pillow does not
        # go below the size asked for.
        needed = [math.ceil(_SPARE * stored[axis] * target[axis] / part[axis]) for axis in (0, 1)]
        drafted = image.draft(None, (needed[0], needed[1]))
        extent = drafted[1][2:] if drafted else stored
        spare = tuple(max(1, int(extent[axis] // needed[axis])) for axis in (0, 1))
        try:
            image.load()
            rgb = _rgb(image, spare)
        except _DAMAGE as error:
            raise PictureError(f"it is damaged: {error}") from None
        # In pixels of what is left, of which the last ones of a line or column may stand for less than the others.
        scale = [1 if rgb is image else 1 / spare[axis] for axis in (0, 1)]
        extent = [extent[axis] * scale[axis] for axis in (0, 1)]
        box = _middle(extent, [extent[axis] * part[axis] / stored[axis] for axis in (0, 1)])
        if rgb.size != target or box != (0, 0, *target):
            rgb = rgb.resize(target, resample, box=box)
        turn = _TURNS.get(self._orientation)
        return np.asarray(rgb if turn is None else rgb.transpose(turn))

    def _turned(self, width: float, height: float) -> tuple:
        """``width`` and ``height`` of the upright picture as they are stored, or the other way round."""
        return (height, width) if self._orientation >= _FIRST_LYING else (width, height)


def _bytes_of(data: bytes) -> bytes:
    if not data.startswith(_AS_TEXT):
        return data
    text = data.partition(b",")[2] if data.startswith(b"data:") else data
    try:
        return base64.b64decode(b"".join(text.split()), validate=True)
    except binascii.Error as error:
        raise PictureError(f"it begins as base64 text, and cannot be read as that: {error}") from None


def _open(data: bytes) -> Image.Image:
    try:
        return Image.open(io.BytesIO(data), formats=_FORMATS)
    except UnidentifiedImageError:
        raise PictureError(_stranger(data)) from None
    except (*_DAMAGE, Image.DecompressionBombError) as error:
        raise PictureError(str(error)) from None


def _stranger(data: bytes) -> str:
    if data[:8] == _PNG and data[12:16] == b"IHDR" and len(data) >= 24:
        width, height = struct.unpack(">II", data[16:24])
        if not (width and height):
            return f"it is a PNG of {width} x {height} pixels: an empty picture shows nothing"
    for kind, magic in (("PNG", _PNG), ("JPEG", _JPEG)):
        if data.startswith(magic):
            return f"its {len(data)} bytes begin as those of a {kind}, but the header is damaged or cut short"
    return f"it is neither JPEG nor PNG, or cut short: {len(data)} bytes that begin with {bytes(data[:8])!r}"


def _orientation(image: Image.Image, data: bytes) -> int:
    try:
        if image.format == "PNG" and "exif" not in image.info:
            image.info["exif"] = _late_exif(data)
        # Not the PNG's own getexif, which decodes all pixels for what may come after them.
        number = Image.Image.getexif(image).get(_ORIENTATION, 1)
    except _DAMAGE:
        # The pixels may be whole although what is written about them is not.
        return 1
    return number if number in _TURNS else 1


def _late_exif(data: bytes) -> bytes | None:
    """What the chunk eXIf of a PNG holds, which may also follow the pixels."""
    offset = len(_PNG)
    while offset + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, offset)
        if kind == b"eXIf":
            return b"Exif\0\0" + data[offset + 8 : offset + 8 + length]
        offset += 12 + length
    return None


def _rgb(image: Image.Image, spare: tuple) -> Image.Image:
    """The picture in 8-bit RGB; what is transparent shows white.

    It is ``image`` itself if that is RGB, else a new one: width and height divided by ``spare``, rounded up.
    """
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    smaller = Image.new("RGB", tuple(-(-image.size[axis] // spare[axis]) for axis in (0, 1)))
    across, down = (spare[axis] * max(1, _TILE // spare[axis]) for axis in (0, 1))
    for top in range(0, image.height, down):
        for left in range(0, image.width, across):
            tile = image.crop((left, top, min(left + across, image.width), min(top + down, image.height)))
            tile = _coloured(tile)
            if spare != (1, 1):
                tile = tile.reduce(spare)
            smaller.paste(tile, (left // spare[0], top // spare[1]))
    return smaller


def _coloured(image: Image.Image) -> Image.Image:
    """A picture in 8-bit RGB; what is transparent shows white, as in a viewer."""
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    if image.mode.startswith("I"):
        # 16 bits of grey. Pillow's own conversion would cut off at 255 instead of scaling.
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image.convert("RGB")


def _middle(extent: tuple, part: list) -> tuple:
    """The box (left, top, right, bottom) of the size ``part`` in the middle of ``extent``."""
    left, top = ((extent[axis] - part[axis]) / 2 for axis in (0, 1))
    return (max(left, 0), max(top, 0), min(left + part[0], extent[0]), min(top + part[1], extent[1]))
