"""Parameters in ``config.pbtxt`` that mean something for a model of any backend."""

from __future__ import annotations

from typing import Any

LANE = "LANE"
"""Parameter: where the model's instances run, ``inline`` or ``thread``; measured where it is not given."""

SYNTHETIC_WEIGHTS = "synthetic_weights"
"""Parameter: says that the weights are random and the answers mean nothing; shown wherever the model is."""

IMAGE_PREPROCESS = "image_preprocess"
"""Parameter: what ``bident run`` does to a picture before the model sees it."""

OWN_PARAMETERS = frozenset({LANE, SYNTHETIC_WEIGHTS, IMAGE_PREPROCESS})
"""Parameters that mean something for a model of any backend; a backend does not wonder at them."""


def parameter(config: dict[str, Any], name: str) -> str:
    """A parameter of the configuration ``config``, as the protocol's JSON has it; empty where it is not set."""
    entry = (config.get("parameters") or {}).get(name) or {}
    return str(entry.get("string_value", ""))


def synthetic(config: dict[str, Any]) -> str:
    """What ``config`` says about stand-in weights; empty when they are real."""
    said = parameter(config, SYNTHETIC_WEIGHTS)
    return "" if said.lower() in ("", "false", "0", "no") else said
