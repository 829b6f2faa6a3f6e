"""The ``parameters`` of a fil model: read, checked, and completed from the trees where they are missing."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from bident.backends.fil.formats import ModelType
from bident.backends.fil.loading import TreeModel
from bident.errors import ConfigError

_DEPRECATED = {
    "algo": "is layout's old name and concerns GPUs only",
    "threads_per_tree": "is chunk_size's old name and concerns GPUs only",
    "storage_type": "was removed from fil in 25.09",
    "blocks_per_sm": "was removed from fil in 25.09",
    "use_experimental_optimizations": "is deprecated: the fastest engine is found by measuring",
}
_LAYOUTS = ("depth_first", "breadth_first", "layered")
_USUAL_THRESHOLD = 0.5
"""Assumed where there is none. Triton demands the parameter of every classifier, so this value is said often."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class Parameters:
    """What the config says, defaults filled in. ``threads`` None leaves their number to the server."""

    is_classifier: bool
    predict_proba: bool
    threshold: float
    threads: int | None
    allow_unknown_field: bool
    warnings: tuple[str, ...]


def declared_model_type(parameters: dict[str, str]) -> ModelType | None:
    """``model_type`` as declared, or None. Raises ConfigError for one that does not exist."""
    value = parameters.get("model_type", "")
    if not value:
        return None
    try:
        return ModelType(value.lower())
    except ValueError:
        allowed = [kind.value for kind in ModelType]
        near = difflib.get_close_matches(value, allowed, 1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise ConfigError(
            f"parameter model_type: '{value}' is not recognized as a valid serialization format{hint} "
            f"(allowed: {', '.join(allowed)})"
        ) from None


def read_parameters(parameters: dict[str, str], model: TreeModel) -> Parameters:
    """Read ``parameters`` for ``model``. Raises ConfigError that names the key and what it may be."""
    reader = _Reader(parameters)
    reader.note_unused()
    predict_proba = reader.get("predict_proba", _boolean, False)
    is_classifier = _is_classifier(reader, model)
    classes = model.forest.classes
    if not is_classifier and classes > 1:
        key = "output_class" if reader.has("output_class") else "is_classifier"
        raise ConfigError(
            f"parameter {key}: 'false' contradicts the model, which has {classes} classes (allowed: true)"
        )
    if not is_classifier and predict_proba:
        declared = reader.has("is_classifier", "output_class")
        raise ConfigError(
            "parameter predict_proba: 'true' needs a classifier, but is_classifier is "
            f"{'false' if declared else f'absent and the model is one of {model.task.name.lower()}'} "
            "(allowed: false, or true with is_classifier 'true')"
        )
    threshold = reader.get("threshold", _finite, _USUAL_THRESHOLD)
    decides = is_classifier and not predict_proba and classes == 1
    if decides and not reader.has("threshold"):
        reader.warnings.append(f"no parameter threshold: {_USUAL_THRESHOLD} is assumed")
    demanded = is_classifier and threshold == _USUAL_THRESHOLD
    if reader.has("threshold") and not decides and not demanded:
        reader.warnings.append("parameter threshold has no effect: it serves binary classifiers without predict_proba")
    threads = reader.get("cpu_nthread", int, -1)
    return Parameters(
        is_classifier=is_classifier,
        predict_proba=predict_proba,
        threshold=threshold,
        threads=threads if threads > 0 else None,
        allow_unknown_field=reader.get("xgboost_allow_unknown_field", _boolean, False),
        warnings=tuple(reader.warnings),
    )


def _is_classifier(reader: _Reader, model: TreeModel) -> bool:
    if reader.has("output_class"):
        declared = reader.get("output_class", _boolean, False)
        # Both, and alike, are for Tritons before 25.09, which know output_class alone, and for later ones.
        if reader.get("is_classifier", str.lower, "") != str(declared).lower():
            reader.warnings.append("parameter output_class is deprecated: write is_classifier")
    elif reader.has("is_classifier"):
        declared = reader.get("is_classifier", _boolean, False)
    else:
        guess = "true" if model.is_classifier else "false"
        reader.warnings.append(
            f"no parameter is_classifier: {guess} is assumed, because the model is one of {model.task.name.lower()}"
        )
        return model.is_classifier
    if declared and not model.is_classifier:
        reader.warnings.append(f"is_classifier is true, but the model is one of {model.task.name.lower()}")
    return declared


class _Reader:
    def __init__(self, parameters: dict[str, str]) -> None:
        self._parameters = parameters
        self.warnings: list[str] = []

    def has(self, *keys: str) -> bool:
        return any(key in self._parameters for key in keys)

    def get(self, key: str, convert: Callable[[str], _T], default: _T) -> _T:
        value = self._parameters.get(key)
        if value is None:
            return default
        try:
            return convert(value.strip())
        except ValueError:
            raise ConfigError(f"parameter {key}: '{value}' is not allowed (allowed: {_ALLOWED[convert]})") from None

    def note_unused(self) -> None:
        """Check the parameters that only GPUs heed, and say which ones nobody does."""
        self.get("layout", _layout, "depth_first")
        self.get("chunk_size", int, 1)
        self.get("transfer_threshold", int, 0)
        known = {*_MEANT, *_DEPRECATED}
        for key in self._parameters:
            if key in _DEPRECATED:
                self.warnings.append(f"parameter {key} {_DEPRECATED[key]}: it has no effect")
            elif key not in known:
                near = difflib.get_close_matches(key, known, 1)
                hint = f"; did you mean '{near[0]}'?" if near else ""
                self.warnings.append(f"parameter {key} is unknown to fil and has no effect{hint}")


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


def _layout(text: str) -> str:
    if text not in _LAYOUTS:
        raise ValueError
    return text


_MEANT = (
    "model_type",
    "is_classifier",
    "output_class",
    "predict_proba",
    "threshold",
    "cpu_nthread",
    "xgboost_allow_unknown_field",
    "layout",
    "chunk_size",
    "transfer_threshold",
)
_ALLOWED: dict[Callable[[str], object], str] = {
    _boolean: "true, false",
    _finite: "a finite number such as 0.5",
    _layout: ", ".join(_LAYOUTS),
    int: "a whole number",
}
