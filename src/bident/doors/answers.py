"""What both doors ask of an answer before they write it: does that take long, and has one like it been written?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from bident.doors.shared_tensors import COPY_HERE
from bident.engine.shared_memory import Window
from bident.wire.datatypes import BYTES
from bident.wire.infer import InferResponse

WRITE_HERE = 10_000
"""Up to this many strings, or elements to classify, the event loop writes itself."""
MOST_TEMPLATES = 1024

Want = int | Window
"""How a client wants an output: as so many best labels (0: as it is), or written to that window of shared memory."""

_Template = TypeVar("_Template")


def takes_long(response: InferResponse, want_of: Callable[[str], Want | None] | None = None) -> bool:
    """Whether writing the answer would keep the event loop from others.

    Many strings do, classes of many elements, and much that goes to shared memory. ``want_of``: how the output of
    that name is wanted; without it all are as they are.
    """
    for column in response.columns:
        size = column.array.size
        if size > WRITE_HERE:
            if response.stop != -1:
                size = size // len(column.array) * (response.stop - response.start)
            want = want_of(column.name) if want_of is not None else None
            is_classified = bool(want) and not isinstance(want, Window)
            if size > WRITE_HERE and (column.datatype is BYTES or is_classified):
                return True
            if isinstance(want, Window) and size * column.datatype.size > COPY_HERE:
                return True
    return False


def template_of(
    templates: dict[object, _Template], response: InferResponse, make: Callable[[InferResponse], _Template]
) -> _Template:
    """What ``make`` makes of an answer with the outputs of ``response``, as large and in that order.

    It is kept in ``templates``, those of one version of a model, and thrown away with others when there are too many.
    """
    columns = response.columns
    rows = response.stop - response.start
    if response.stop == -1 or not columns or rows == len(columns[0].array):
        key = tuple([(column.name, column.array.shape) for column in columns])
    else:
        key = tuple([(column.name, (rows, *column.array.shape[1:])) for column in columns])
    template = templates.get(key)
    if template is None:
        if len(templates) >= MOST_TEMPLATES:
            templates.clear()
        template = templates[key] = make(response)
    return template
