"""Parameters in ``config.pbtxt`` that mean something for a model of any backend."""

from __future__ import annotations

LANE = "LANE"
"""Parameter: where the model's instances run, ``inline`` or ``thread``; measured where it is not given."""

SYNTHETIC_WEIGHTS = "synthetic_weights"
"""Parameter: says that the weights are random and the answers mean nothing; shown wherever the model is."""

IMAGE_PREPROCESS = "image_preprocess"
"""Parameter: what ``bident run`` does to a picture before the model sees it."""

OWN_PARAMETERS = frozenset({LANE, SYNTHETIC_WEIGHTS, IMAGE_PREPROCESS})
"""Parameters that mean something for a model of any backend; a backend does not wonder at them."""
