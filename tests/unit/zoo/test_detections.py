"""From a picture to a network's input and back: nothing gets lost, and OpenCV finds the same boxes."""

from __future__ import annotations

import io

import cv2
import numpy as np
import pytest
from PIL import Image

from bident.zoo.models.pictures import Picture
from bident.zoo.models.yolo_postprocess.detections import decode, detect, limits, suppress
from bident.zoo.models.yolo_preprocess.letterbox import letterbox

DEFAULTS = {"confidence": 0.25, "iou": 0.45, "max_detections": 300}
PLAIN = np.array([0, 0, 1, 1, 640, 640], np.float32)


def crowd(seed, count=400, classes=3, spread=300.0):
    random = np.random.default_rng(seed)
    corners = random.uniform(0, spread, (count, 2))
    boxes = np.concatenate([corners, corners + random.uniform(5, 120, (count, 2))], axis=1).astype(np.float32)
    scores = random.permutation(np.linspace(0.01, 0.99, count)).astype(np.float32)
    return boxes, scores, random.integers(0, classes, count).astype(np.int32)


def opencv(boxes, scores, class_ids, confidence, iou):
    sized = np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1).astype(np.float64)
    found = cv2.dnn.NMSBoxesBatched(sized.tolist(), scores.tolist(), class_ids.tolist(), confidence, iou)
    return np.array(found, np.int64).reshape(-1)


@pytest.mark.parametrize("iou", [0.2, 0.45, 0.7])
@pytest.mark.parametrize("seed", range(30))
def test_the_same_boxes_as_opencv(seed, iou):
    boxes, scores, class_ids = crowd(seed, classes=1 + seed % 5, spread=100.0)
    chosen = np.flatnonzero(scores > 0.25)
    kept = chosen[suppress(boxes[chosen], scores[chosen], class_ids[chosen], iou, 10_000)]
    np.testing.assert_array_equal(kept, opencv(boxes, scores, class_ids, 0.25, iou))
    assert 0 < len(kept) < len(chosen)


def test_classes_do_not_suppress_each_other():
    boxes = np.array([[0, 0, 10, 10]] * 3, np.float32)
    kept = suppress(boxes, np.array([0.5, 0.9, 0.7], np.float32), np.array([0, 1, 1]), 0.5, 10)
    assert kept.tolist() == [1, 0]


def test_the_best_ones_stay_when_there_are_too_many():
    boxes, scores, class_ids = crowd(5)
    everything = suppress(boxes, scores, class_ids, 0.45, 10_000)
    np.testing.assert_array_equal(suppress(boxes, scores, class_ids, 0.45, 7), everything[:7])


def test_boxes_without_area_do_no_harm():
    boxes = np.array([[5, 5, 5, 5], [5, 5, 5, 5], [0, 0, 10, 10]], np.float32)
    kept = suppress(boxes, np.array([0.9, 0.8, 0.7], np.float32), np.zeros(3, int), 0.45, 10)
    assert sorted(kept.tolist()) == [0, 1, 2]


def candidates(boxes, scores, class_ids, classes):
    """One candidate a column: [4 + classes, n]."""
    table = np.zeros((4 + classes, len(boxes)), np.float32)
    table[:2] = ((boxes[:, :2] + boxes[:, 2:]) / 2).T
    table[2:4] = (boxes[:, 2:] - boxes[:, :2]).T
    table[4 + class_ids, np.arange(len(boxes))] = scores
    return table


@pytest.mark.parametrize("classes", [1, 2, 18, 80, 600])
@pytest.mark.parametrize("count", [0, 1, 3, 400])
def test_both_layouts_give_the_same_objects(classes, count):
    boxes, scores, class_ids = (
        crowd(count + classes, count, classes) if count else (np.zeros((0, 4)), [], np.zeros(0, int))
    )
    table = candidates(boxes, scores, class_ids, classes)
    found = detect(table, PLAIN, classes, **DEFAULTS)
    for other in (table[None], np.ascontiguousarray(table.T), np.ascontiguousarray(table.T)[None]):
        for one, two in zip(found, detect(other, PLAIN, classes, **DEFAULTS), strict=True):
            np.testing.assert_array_equal(one, two)
    assert [part.dtype for part in found] == [np.float32, np.float32, np.int32]
    assert found[0].shape == (len(found[1]), 4)
    assert (np.diff(found[1]) <= 0).all()


def test_a_square_of_candidates_is_read_as_yolo_exports_it():
    table = np.zeros((6, 6), np.float32)
    table[:, 0] = [50, 50, 20, 20, 0.1, 0.9]
    boxes, scores, class_ids = decode(table, 2, 0.25)
    assert boxes.tolist() == [[40, 40, 60, 60]]
    assert scores.tolist() == [np.float32(0.9)]
    assert class_ids.tolist() == [1]


def test_candidates_of_other_classes_are_refused():
    with pytest.raises(ValueError, match=r"answers \[22, 2100\]; with 80 labels one side must be 84"):
        detect(np.zeros((22, 2100), np.float32), PLAIN, 80, **DEFAULTS)


def test_a_score_must_be_more_than_the_confidence():
    table = candidates(np.array([[0, 0, 10, 10]], np.float32), [0.25], np.array([0]), 1)
    assert len(detect(table, PLAIN, 1, **DEFAULTS)[0]) == 0
    assert len(detect(table, PLAIN, 1, **{**DEFAULTS, "confidence": 0.2499})[0]) == 1


def test_scores_that_are_no_numbers_find_nothing():
    table = candidates(*crowd(1, 10, 2), 2)
    table[4:] = np.nan
    assert len(detect(table, PLAIN, 2, **DEFAULTS)[0]) == 0


def test_boxes_end_at_the_picture_and_those_beside_it_go():
    boxes = np.array([[-20, 90, 50, 200], [600, 300, 700, 700], [0, 0, 100, 70]], np.float32)
    table = candidates(boxes, [0.9, 0.8, 0.7], np.array([0, 1, 0]), 2)
    found, _, class_ids = detect(table, np.array([0, 80, 2, 2, 1280, 960], np.float32), 2, **DEFAULTS)
    assert found.tolist() == [[0, 20, 100, 240], [1200, 440, 1280, 960]]
    assert class_ids.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"confidence": 1.5}, "confidence is 1.5; it takes a number from 0 to 1"),
        ({"iou": "much"}, "iou is 'much'; it takes a number from 0 to 1"),
        ({"iou": float("nan")}, "iou is nan"),
        ({"max_detections": 0}, "max_detections is 0; it takes a number from 1 to 100000"),
        ({"max_detections": None}, "max_detections is None"),
    ],
)
def test_impossible_limits(given, message):
    with pytest.raises(ValueError, match=message):
        limits(given, DEFAULTS)


def test_limits_come_as_numbers_or_text_and_leave_the_others_as_they_are():
    assert limits({"confidence": "0.5", "max_detections": 7, "unknown": []}, DEFAULTS) == {
        "confidence": 0.5,
        "iou": 0.45,
        "max_detections": 7,
    }


@pytest.mark.parametrize("seed", range(40))
def test_places_in_the_square_are_places_in_the_picture(seed):
    """A white spot in a black picture of any size: where the square is white lies, mapped back, the spot."""
    random = np.random.default_rng(seed)
    width, height = (int(side) for side in random.integers(30, 1500, 2))
    size = int(random.choice([160, 320, 640]))
    spot = [int(width * 0.3), int(height * 0.4), int(width * 0.7), int(height * 0.8)]
    image = Image.new("RGB", (width, height))
    image.paste("white", tuple(spot))
    for kind, options in (("PNG", {}), ("JPEG", {"quality": 95})):
        file = io.BytesIO()
        image.save(file, kind, **options)
        square, placement = letterbox(Picture(file.getvalue(), 10**8), size)
        assert square.shape == (3, size, size)
        assert square.dtype == np.float32
        assert square.flags.c_contiguous
        x1, x2 = edges(square[0].max(axis=0))
        y1, y2 = edges(square[0].max(axis=1))
        table = candidates(np.array([[x1, y1, x2, y2]]), [0.9], np.array([0]), 1)
        (box,), _, _ = detect(table, placement, 1, **DEFAULTS)
        # What one pixel of the square covers of the picture, and what JPEG smears.
        np.testing.assert_allclose(box, spot, atol=max(1.0, float(placement[2:4].max())))


def edges(line):
    """The first place and the last at which ``line`` is rather white; grey around the picture is not."""
    places = np.flatnonzero(line > 0.5)
    return int(places[0]), int(places[-1]) + 1


@pytest.mark.parametrize(("width", "height"), [(640, 480), (480, 640), (1, 1), (10000, 2), (3, 5000)])
def test_grey_lies_around_the_picture_in_its_proportions(width, height):
    file = io.BytesIO()
    Image.new("RGB", (width, height), "white").save(file, "PNG")
    square, (left, top, x_step, y_step, *size) = letterbox(Picture(file.getvalue(), 10**8), 640)
    assert size == [width, height]
    inside = square[0] > 0.99
    assert inside.sum() == round(width / x_step) * round(height / y_step)
    assert inside[int(top), int(left)]
    np.testing.assert_allclose(square[:, ~inside], 114 / 255, rtol=1e-6)
