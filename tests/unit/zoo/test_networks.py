"""The architectures written by hand: the sizes their papers state, and sane numbers from seeded weights."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from bident.zoo.photos import photo
from bident.zoo.reference import run_onnx

# The published sizes: ResNet-18's learned weights and the mean and variance of its 4,800 normalized
# channels; YOLOv8n's with normalization folded into the convolutions.
RESNET18 = 11_689_512 + 2 * 4_800
YOLOV8N = 3_151_904


def operators(path):
    return [node.op_type for node in onnx.load(path).graph.node]


def weights(path):
    """How many numbers the weights (tensors of convolutions, normalizations and the last layer) hold."""
    graph = onnx.load(path).graph
    sizes = {tensor.name: int(np.prod(tensor.dims)) for tensor in graph.initializer}
    learned = [node for node in graph.node if node.op_type in {"Conv", "Gemm", "BatchNormalization"}]
    return sum(sizes.get(name, 0) for node in learned for name in node.input)


def test_resnet18_has_the_papers_layers_and_size(repository):
    path = repository / "resnet18" / "1" / "model.onnx"
    assert weights(path) == RESNET18
    assert operators(path).count("Conv") == 20
    assert operators(path).count("Add") == 8


def test_yolov8n_has_the_published_size(repository):
    path = repository / "yolov8n" / "1" / "model.onnx"
    bins = 16  # the published count includes the fixed 0..15 of the box decoder
    assert weights(path) + bins == YOLOV8N
    assert operators(path).count("Conv") == 63


def test_imagenet_lite0_has_lite0s_blocks(repository):
    path = repository / "imagenet_lite0" / "1" / "model.onnx"
    assert operators(path).count("Conv") == 1 + 16 * 3 - 1 + 1  # the first of 16 blocks does not widen
    assert operators(path).count("Add") == 9


@pytest.mark.parametrize("picture", ["astronaut.png", "coffee.png"])
def test_yolov8n_boxes_are_pixels_and_scores_are_probabilities(repository, picture):
    images = photo(picture, 640)[None] / np.float32(255)
    output = run_onnx(repository / "yolov8n" / "1" / "model.onnx", {"images": images})["output0"][0]
    boxes, scores = output[:4], output[4:]
    assert output.shape == (84, 8400)
    assert np.isfinite(output).all()
    assert scores.min() >= 0
    assert scores.max() < 0.999
    assert scores.std() > 0
    # A side is at most 15 cells from the centre of a cell, and the largest cells are 32 pixels.
    assert boxes[:2].min() >= -15 * 16
    assert boxes[:2].max() <= 640 + 15 * 16
    assert boxes[2:].min() >= 0
    assert boxes[2:].max() <= 30 * 32
    # The first and last cells of the finest grid sit in the corners of the picture.
    assert np.abs(boxes[:2, 0] - 4).max() < 15 * 8
    assert np.abs(boxes[:2, 6399] - 636).max() < 15 * 8


def test_resnet18_tells_pictures_apart(repository):
    path = repository / "resnet18" / "1" / "model.onnx"
    pictures = np.stack([photo(name, 224) / np.float32(255) for name in ("astronaut.png", "coffee.png")])
    first, second = run_onnx(path, {"data": pictures})["resnetv15_dense0_fwd"]
    assert np.isfinite(first).all()
    assert 0.1 < first.std() < 10
    assert np.abs(first - second).max() > 0.01


@pytest.mark.parametrize(
    ("name", "seen"),
    [("coffee.png", 967), ("camera.png", 872), ("rocket.jpg", 657)],
    ids=["espresso", "tripod", "missile"],
)
def test_imagenet_lite0_recognizes_other_photos(repository, name, seen):
    image = (photo(name, 224)[None] - np.float32(127)) / np.float32(128)
    logits = run_onnx(repository / "imagenet_lite0" / "1" / "model.onnx", {"input": image})["logits"][0]
    assert logits.argmax() == seen
