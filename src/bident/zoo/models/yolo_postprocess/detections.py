"""From a YOLO network's candidates to the objects in a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

RANGES = {"confidence": (0.0, 1.0), "iou": (0.0, 1.0), "max_detections": (1.0, 100_000.0)}
"""Each limit's smallest and largest value."""


def limits(given: Mapping[str, Any], defaults: Mapping[str, float]) -> dict[str, float]:
    """``defaults`` with the limits that ``given`` names (as numbers or text). Raises ValueError."""
    chosen = dict(defaults)
    for name, (low, high) in RANGES.items():
        if name not in given:
            continue
        try:
            chosen[name] = float(given[name])
        except (TypeError, ValueError):
            chosen[name] = float("nan")
        if not low <= chosen[name] <= high:
            raise ValueError(f"{name} is {given[name]!r}; it takes a number from {low:g} to {high:g}")
    return chosen


def detect(
    candidates: Array, placement: Array, classes: int, *, confidence: float, iou: float, max_detections: float
) -> tuple[Array, Array, Array]:
    """The objects in a picture, best first: boxes FP32 [n, 4] (x1, y1, x2, y2), scores FP32 [n], classes INT32 [n].

    ``candidates`` are in pixels of the network's input, ``placement`` says where the picture lies in it
    (see letterbox.py). Boxes end at the picture's edges. Raises ValueError if ``candidates`` are not
    those of ``classes`` classes.
    """
    boxes, scores, class_ids = decode(candidates, classes, confidence)
    kept = suppress(boxes, scores, class_ids, iou, int(max_detections))
    boxes, scores, class_ids = boxes[kept], scores[kept], class_ids[kept]
    left, top, x_step, y_step, width, height = placement
    boxes = (boxes - np.array([left, top, left, top], np.float32)) * np.array([x_step, y_step, x_step, y_step])
    boxes = np.clip(boxes, 0, np.array([width, height, width, height])).astype(np.float32)
    # What lies in the grey around the picture has no area left.
    inside = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
    return boxes[inside], scores[inside], class_ids[inside]


def decode(candidates: Array, classes: int, confidence: float) -> tuple[Array, Array, Array]:
    """The candidates whose best class scores more than ``confidence``: boxes (x1, y1, x2, y2), scores, classes.

    Takes one candidate a column ([4 + classes, n], as YOLOv8 is exported) or one a row.
    """
    table = candidates.reshape(candidates.shape[-2:])
    if table.shape[0] != 4 + classes:
        table = table.T
    if table.shape[0] != 4 + classes:
        raise ValueError(
            f"the network answers {list(candidates.shape)}; with {classes} labels one side must be {4 + classes} "
            "(4 coordinates and a score for each class): is the label file the network's own?"
        )
    chosen = np.flatnonzero(table[4:].max(axis=0) > confidence)
    table = table[:, chosen]
    class_ids = table[4:].argmax(axis=0).astype(np.int32)
    centre, half = table[:2], table[2:4] / 2
    boxes = np.concatenate([centre - half, centre + half]).T
    return boxes, table[4 + class_ids, np.arange(len(chosen))], class_ids


def suppress(boxes: Array, scores: Array, class_ids: Array, iou: float, count: int) -> Array:
    """Non-maximum suppression in each class: the indexes of at most ``count`` boxes, best first.

    A box goes if a better one of its class overlaps it by more than ``iou`` (the area that both cover,
    over the area that either covers).
    """
    order = np.argsort(-scores, kind="stable")
    corners, classes = np.ascontiguousarray(boxes[order].T), class_ids[order]
    areas = (corners[2] - corners[0]) * (corners[3] - corners[1])
    stays = np.ones(len(order), bool)
    kept: list[int] = []
    at = 0
    # One turn for each box that stays, not for each candidate: the best one left strikes out what it overlaps.
    while len(kept) < count and stays[at:].any():
        at += int(stays[at:].argmax())
        kept.append(at)
        later = slice(at + 1, None)
        overlaps = _overlaps(corners[:, at], areas[at], corners[:, later], areas[later])
        stays[later] &= (overlaps <= iou) | (classes[later] != classes[at])
        at += 1
    return order[kept]


def _overlaps(box: Array, area: Any, others: Array, areas: Array) -> Array:
    """Intersection over union of a box (x1, y1, x2, y2) with each of ``others`` [4, n]."""
    width = np.minimum(box[2], others[2]) - np.maximum(box[0], others[0])
    height = np.minimum(box[3], others[3]) - np.maximum(box[1], others[1])
    both = np.maximum(width, 0) * np.maximum(height, 0)
    return both / np.maximum(area + areas - both, np.finfo(np.float32).tiny)
