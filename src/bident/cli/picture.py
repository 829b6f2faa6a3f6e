"""Turns a picture into the tensor an image model takes: cut, resized, normalised, laid out.

A model says how in its configuration parameter ``image_preprocess``, for example
``scale=0.0078125,shift=-0.9921875,size=224,crop=center``: each pixel value (0 to 255) becomes
``value * scale + shift``. For a model that says nothing the usual habits are guessed, and told.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bident.cli.card import ModelCard, TensorCard
from bident.cli.fit import fit
from bident.errors import Code, ServeError, invalid_arg
from bident.model.parameters import IMAGE_PREPROCESS

if TYPE_CHECKING:
    from PIL.Image import Image

CROPS = ("center", "stretch", "pad")
_CHANNELS = (1, 3)
_DEFAULT_SIZE = 224
_CENTRE_SHARE = 0.875
"""How much of the shorter side a centre crop keeps: 224 of 256, as image classifiers are tested."""
_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class PictureOptions:
    """What the command line says: a pixel becomes ``(value * scale - mean) / std``. None: not said."""

    mean: str | None = None
    std: str | None = None
    scale: float | None = None
    size: int | None = None
    crop: str | None = None


@dataclass(frozen=True)
class _Plan:
    scale: tuple[float, ...]
    shift: tuple[float, ...]
    size: int
    crop: str
    origin: str


@dataclass(frozen=True)
class _Frame:
    height: int
    width: int
    channels: int
    channels_first: bool


def read(path: Path, model: ModelCard, options: PictureOptions) -> tuple[NDArray[Any], TensorCard, str]:
    """The picture in ``path`` as ``model``'s image input, that input, and what was done to it."""
    image = open_upright(path)
    card = _image_input(model)
    plan = _plan(model, card, options)
    frame = _frame(card, plan.size)
    cut = _cut(image.convert("RGB" if frame.channels == 3 else "L"), frame, plan.crop)
    pixels: NDArray[Any] = np.asarray(cut).reshape(frame.height, frame.width, frame.channels)
    whole = card.datatype in ("UINT8", "INT32", "INT64")
    if not whole:
        pixels = pixels.astype(np.float32) * np.array(plan.scale, np.float32) + np.array(plan.shift, np.float32)
    if frame.channels_first:
        pixels = pixels.transpose(2, 0, 1)
    values = "pixel values 0 to 255" if whole else plan.origin
    remark = f"picture: {plan.crop} to {frame.width}x{frame.height}, {values}"
    return fit(card, pixels), card, remark


def _image_input(model: ModelCard) -> TensorCard:
    found = [card for card in model.inputs.values() if _channel_axis(card) is not None]
    if len(found) != 1:
        raise invalid_arg(f"a picture needs one input shaped [3, height, width]; {model.signature()}")
    return found[0]


def _item_shape(card: TensorCard) -> tuple[int, ...]:
    """The shape of one picture: the last three dimensions, after a batch dimension at most."""
    return card.shape[-3:] if len(card.shape) in (3, 4) else ()


def _channel_axis(card: TensorCard) -> int | None:
    shape = _item_shape(card)
    if not shape or card.datatype in ("BYTES", "BOOL"):
        return None
    if shape[0] in _CHANNELS:
        return 0
    return 2 if shape[2] in _CHANNELS else None


def _frame(card: TensorCard, size: int) -> _Frame:
    shape = _item_shape(card)
    first = _channel_axis(card) == 0
    channels, height, width = shape if first else (shape[2], shape[0], shape[1])
    return _Frame(size if height == -1 else height, size if width == -1 else width, channels, first)


def _plan(model: ModelCard, card: TensorCard, options: PictureOptions) -> _Plan:
    declared = model.parameter(IMAGE_PREPROCESS)
    base = _declared(declared, model.name) if declared else _guessed(card, options)
    crop = options.crop or base.crop
    if crop not in CROPS:
        raise invalid_arg(f"unknown crop '{crop}'; expected {', '.join(CROPS)}")
    scale, shift, origin = base.scale, base.shift, base.origin
    if options.mean or options.std or options.scale is not None:
        factor = 1 / 255 if options.scale is None else options.scale
        std = _numbers(options.std, "--std", 1.0)
        mean = _numbers(options.mean, "--mean", 0.0)
        scale = tuple(factor / item for item in std)
        shift = tuple(-mean_item / std_item for mean_item, std_item in _paired(mean, std))
        origin = "normalised as told"
    return _Plan(scale, shift, options.size or base.size, crop, origin)


def _declared(text: str, name: str) -> _Plan:
    try:
        said = dict(part.strip().split("=", 1) for part in text.split(",") if part.strip())
        scale = float(said.get("scale", 1.0))
        shift = float(said.get("shift", 0.0))
        size = int(said.get("size", _DEFAULT_SIZE))
    except ValueError:
        raise invalid_arg(
            f"model '{name}': its parameter {IMAGE_PREPROCESS} is '{text}'; expected scale=<number>,shift=<number>,"
            f"size=<pixels>,crop=<{'|'.join(CROPS)}>"
        ) from None
    return _Plan((scale,), (shift,), size, said.get("crop", "center"), "normalised as the model says")


def _guessed(card: TensorCard, options: PictureOptions) -> _Plan:
    size = options.size or _DEFAULT_SIZE
    frame = _frame(card, size)
    if (frame.height, frame.width, frame.channels) == (224, 224, 3):
        scale = tuple(1 / (255 * std) for std in _IMAGENET_STD)
        shift = tuple(-mean / std for mean, std in zip(_IMAGENET_MEAN, _IMAGENET_STD, strict=True))
        return _Plan(scale, shift, size, "center", "ImageNet mean and std (a guess; say --mean, --std, --scale)")
    return _Plan((1 / 255,), (0.0,), size, "pad", "values 0 to 1 (a guess; say --mean, --std, --scale)")


def _numbers(text: str | None, flag: str, default: float) -> tuple[float, ...]:
    if not text:
        return (default,)
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) not in (1, 3) or (flag == "--std" and 0 in numbers):
        raise invalid_arg(f"{flag} takes one number, or three with commas between them; got {text}")
    return numbers


def _paired(first: tuple[float, ...], second: tuple[float, ...]) -> list[tuple[float, float]]:
    length = max(len(first), len(second))
    return list(zip(first * (length // len(first)), second * (length // len(second)), strict=True))


def open_upright(path: Path) -> Image:
    """The picture in ``path`` as its viewer would see it. Raises INVALID_ARG if it is none."""
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError:
        raise ServeError(Code.UNSUPPORTED, "reading pictures needs Pillow: pip install 'bident[zoo]'") from None
    try:
        with Image.open(path) as opened:
            # Cameras note how they were held instead of turning the pixels.
            upright: Image.Image = ImageOps.exif_transpose(opened)
            upright.load()
            return upright
    except UnidentifiedImageError:
        raise invalid_arg(
            f"{path} is neither a picture nor named .json, .csv, .tsv, .npz or .npy; rename it or convert it"
        ) from None
    except (OSError, Image.DecompressionBombError) as error:
        raise invalid_arg(f"the picture {path} cannot be read: {error}") from None


def _cut(image: Image, frame: _Frame, crop: str) -> Image:
    from PIL import Image as Pillow

    size = (frame.width, frame.height)
    if crop == "stretch":
        return image.resize(size, Pillow.Resampling.BICUBIC)
    if crop == "pad":
        from PIL import ImageOps

        grey = 114 if frame.channels == 1 else (114, 114, 114)
        return ImageOps.pad(image, size, Pillow.Resampling.BICUBIC, color=grey)
    # The largest part with the frame's proportions, less its border.
    share = _CENTRE_SHARE * min(image.width / frame.width, image.height / frame.height)
    width, height = frame.width * share, frame.height * share
    left, top = (image.width - width) / 2, (image.height - height) / 2
    return image.resize(size, Pillow.Resampling.BICUBIC, box=(left, top, left + width, top + height))
