"""Tensor models of every kind that a workflow has to be made for, as the server would describe them."""

from __future__ import annotations

from typing import Any

from bident.connect.site import TensorModel

Spec = tuple[str, str, list[int]]


def model(
    name: str,
    inputs: list[Spec],
    outputs: list[Spec],
    *,
    batch: int = 8,
    labelled: tuple[str, ...] = (),
    optional: tuple[str, ...] = (),
    **config: Any,
) -> TensorModel:
    """A model whose tensors are ``(name, datatype, dims without the batch)``."""
    lead = [-1] if batch else []

    def described(specs: list[Spec]) -> list[dict[str, Any]]:
        return [{"name": name, "datatype": datatype, "shape": [*lead, *dims]} for name, datatype, dims in specs]

    declared = {
        "input": [{"name": name, "optional": name in optional} for name, _, _ in inputs],
        "output": [
            {"name": name, "label_filename": "labels.txt" if name in labelled else ""} for name, _, _ in outputs
        ],
    }
    metadata = {"name": name, "inputs": described(inputs), "outputs": described(outputs)}
    return TensorModel(name, "1", metadata, {"name": name, "max_batch_size": batch, **declared, **config})


X = ("X", "FP32", [4])
Y = ("Y", "FP32", [1])
IRIS = model("iris", [X], [("label", "INT64", [1]), ("p", "FP32", [3])], labelled=("p",))
DETECT = model(
    "detect",
    [("IMAGE", "BYTES", [1])],
    [("BOXES", "FP32", [-1, 4]), ("SCORES", "FP32", [-1]), ("LABELS", "BYTES", [-1])],
    batch=0,
)
FIT = (
    IRIS,
    DETECT,
    model("text", [("TEXT", "BYTES", [1])], [("LABEL", "BYTES", [1]), ("SCORE", "FP32", [1])]),
    model("wide", [("input__0", "FP32", [32])], [Y]),
    model("yes or no", [("on", "BOOL", [1]), ("n", "INT32", [1])], [("ok", "BOOL", [1]), ("flags", "BOOL", [3])]),
    model("tokens", [("ids", "INT64", [-1]), ("mask", "INT64", [-1])], [("states", "FP32", [-1, 384])]),
    model("extra", [X, ("more", "FP32", [2])], [Y], optional=("more",)),
    model("ranks two", [X], [("a", "FP32", [5]), ("b", "FP32", [1000])], labelled=("a", "b")),
    model("embeds", [("TEXT", "BYTES", [1])], [("vector", "FP32", [384]), ("tokens", "BYTES", [12])]),
    model("large", [X], [("map", "FP32", [84, 8400]), ("logits", "FP32", [200_000]), ("y", "FP32", [40, 40])]),
    model(
        "odd names", [("class", "FP32", [1]), ("1st input!", "FP32", [1]), ("名", "FP32", [1])], [("answer", *Y[1:])]
    ),
    model("many/slashes?", [("a" * 60, "FP32", [1]), ("a" * 61, "FP32", [1])], [Y, ("Y ", *Y[1:])]),
    model("pages", [("PAGE_IMAGE", "BYTES", [1]), ("dpi", "INT32", [1])], [("words", "BYTES", [-1])]),
    model("scalar", [("x", "FP64", [])], [("y", "UINT64", [])], batch=0),
    model("made up", [X], [Y], parameters={"synthetic_weights": {"string_value": "seeded random numbers"}}),
)
UNFIT = (
    (
        model("pixels", [("images", "FP32", [3, 640, 640])], [Y]),
        "nobody fills in the 1228800 elements of its input 'images'",
    ),
    (model("map", [X], [("map", "FP32", [84, 8400])]), "its output 'map' is more than Dify's nodes can carry"),
    (
        model("segment", [("image", "BYTES", [1])], [("mask", "FP32", [640, 640])]),
        "its output 'mask' of 409600 elements would come along",
    ),
    (model("stream", [X], [Y], model_transaction_policy={"decoupled": True}), "it answers as a stream"),
    (model("memory", [X], [Y], sequence_batching={}), "it remembers its last requests"),
)
