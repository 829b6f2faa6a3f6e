"""``bident run --save``: the objects that a model has found, drawn into the picture."""

from __future__ import annotations

import colorsys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from bident.cli import picture
from bident.cli.card import ModelCard
from bident.cli.side_by_side import aligned, is_boxes
from bident.errors import invalid_arg

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

_GOLDEN = 0.618034
"""Steps of this share of the colour circle never come close to an earlier colour."""
_BRIGHT = 140
_Colour = tuple[int, int, int]


class Drawing:
    """The picture that a question is about, and the file that it will be drawn into."""

    def __init__(self, source: str, target: Path) -> None:
        """Check, before the model is asked, that both files are what they have to be. Raises INVALID_ARG."""
        if not Path(source).is_file():
            raise invalid_arg(f"--save draws into a picture, and INPUT is no file: {source[:100]}")
        self._image = picture.open_upright(Path(source)).convert("RGB")
        self._target = target
        if not _can_be_saved(target):
            raise invalid_arg(f"--save {target}: pictures are not saved as '{target.suffix}'; name it .png or .jpg")
        if target.exists() and target.samefile(source):
            raise invalid_arg(f"--save {target} would overwrite the picture itself; name another file")

    def save(self, model: ModelCard, tensors: Mapping[str, NDArray[Any]]) -> int:
        """Draw what ``model`` has answered and write the file; how many boxes. Raises INVALID_ARG if it has none."""
        columns = aligned(model, tensors)
        boxes = next((tensor[0] for tensor in columns.values() if is_boxes(tensor) and len(tensor) == 1), None)
        if boxes is None:
            outputs = ", ".join(str(card) for card in model.outputs.values())
            raise invalid_arg(f"--save draws boxes, and model '{model.name}' answers with none: it has {outputs}")
        names = next(tensor[0] for tensor in columns.values() if tensor.dtype == object)
        scores = next((t[0] for t in columns.values() if t.dtype.kind == "f" and t.ndim == 2), [None] * len(boxes))
        colours = _colours([name.decode(errors="replace") for name in names])
        # The surest object comes first in the answer, and lies on top in the picture.
        for box, (name, colour), score in reversed(list(zip(boxes.tolist(), colours, scores, strict=True))):
            draw_object(self._image, box, name if score is None else f"{name} {score:.0%}", colour)
        try:
            self._image.save(self._target)
        except (OSError, ValueError) as error:
            raise invalid_arg(f"--save {self._target}: {error}") from None
        return len(boxes)


def _can_be_saved(target: Path) -> bool:
    from PIL import Image

    return Image.registered_extensions().get(target.suffix.lower()) in Image.SAVE


def draw_object(image: Image, box: list[float], caption: str, colour: _Colour) -> None:
    """Draw one frame, and its caption above it; inside it where there is no room above."""
    from PIL import ImageDraw, ImageFont

    pen = ImageDraw.Draw(image)
    unit = max(image.size) / 640
    line, font = max(1, round(2 * unit)), ImageFont.load_default(max(10, round(14 * unit)))
    # A frame that leaves the picture is drawn along its edge.
    x1, x2 = (min(max(0, round(side)), image.width - 1) for side in (box[0], box[2]))
    y1, y2 = (min(max(0, round(side)), image.height - 1) for side in (box[1], box[3]))
    pen.rectangle((x1, y1, max(x1, x2), max(y1, y2)), outline=colour, width=line)
    left, top, right, bottom = _caption_box(pen, caption, font, (x1, y1), image.size)
    pen.rectangle((left, top, right, bottom), fill=colour)
    ink = "black" if 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2] > _BRIGHT else "white"
    pen.text(((left + right) / 2, (top + bottom) / 2), caption, fill=ink, font=font, anchor="mm")


def _caption_box(
    pen: ImageDraw, caption: str, font: Any, corner: tuple[int, int], room: tuple[int, int]
) -> tuple[int, int, int, int]:
    width, height = round(pen.textlength(caption, font)) + 6, round(font.size * 1.4)
    left = max(0, min(corner[0], room[0] - width))
    top = corner[1] - height if corner[1] >= height else corner[1]
    return left, top, left + width, top + height


def _colours(names: list[str]) -> list[tuple[str, _Colour]]:
    """Each name with a colour of its own, in the order in which names first come."""
    colours: dict[str, _Colour] = {}
    for name in names:
        if name not in colours:
            red, green, blue = colorsys.hsv_to_rgb(len(colours) * _GOLDEN % 1, 0.85, 0.95)
            colours[name] = (round(red * 255), round(green * 255), round(blue * 255))
    return [(name, colours[name]) for name in names]
