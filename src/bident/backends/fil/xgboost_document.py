"""An XGBoost model file as a document, and its repair: any version's schema in, one schema out.

XGBoost changes its schema with every release and treelite refuses what it has not met: string
categories (``cats``) since 3.1, and any field that is new. So the document is read here, checked, and
written again with the fields that say how to predict and no others.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from bident.backends.fil import ubjson
from bident.backends.fil.xgboost_tree import TREE_FIELDS, repaired_tree
from bident.errors import ConfigError

_KNOWN = {
    "the file": {"learner", "version"},
    "learner": {
        "attributes",
        "feature_names",
        "feature_types",
        "gradient_booster",
        "learner_model_param",
        "objective",
    },
    "model": {"cats", "gbtree_model_param", "iteration_indptr", "tree_info", "trees"},
    "learner_model_param": {"base_score", "boost_from_average", "num_class", "num_feature", "num_target"},
}
_VERSION_TEXT = re.compile(rb'"version"\s*:\s*\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]')
_NEWEST_KNOWN = 3
_BOOSTERS = ("gbtree", "dart")


@dataclass
class XgboostDocument:
    """A model file's content. ``notes`` says what a user should hear about it."""

    content: dict[str, Any]
    notes: list[str] = field(default_factory=list)

    @classmethod
    def from_json(cls, data: bytes) -> XgboostDocument:
        """Parse JSON, or XGBoost's dialect of it (NaN, Infinity). Raises ConfigError."""
        try:
            content = orjson.loads(data.removeprefix(b"\xef\xbb\xbf"))
        except orjson.JSONDecodeError as error:
            try:
                content = json.loads(data)
            except (ValueError, RecursionError):
                raise ConfigError(f"is not JSON (cut short, or damaged): {error}") from None
        return cls._checked(content)

    @classmethod
    def from_ubjson(cls, data: bytes) -> XgboostDocument:
        """Decode UBJSON. Raises ConfigError."""
        return cls._checked(ubjson.loads(data))

    @classmethod
    def _checked(cls, content: Any) -> XgboostDocument:
        if isinstance(content, dict) and isinstance(content.get("Model"), dict):
            content = content["Model"]  # a memory snapshot: the model beside its training configuration
        if not isinstance(content, dict) or not isinstance(content.get("learner"), dict):
            raise ConfigError("holds no XGBoost model (no 'learner' in it)")
        return cls(content)

    def repaired(self) -> bytes:
        """The model as JSON that any treelite since 4.4 reads. Raises ConfigError where that cannot be."""
        learner = self.content["learner"]
        try:
            _check_booster(learner["gradient_booster"]["name"])
            parameters = self._parameters(learner["learner_model_param"])
            return dump_json(
                {
                    "learner": {
                        "attributes": {},
                        "feature_names": [],
                        "feature_types": [],
                        "gradient_booster": self._booster(learner["gradient_booster"]),
                        "learner_model_param": parameters,
                        "objective": {"name": _known_objective(learner["objective"]["name"])},
                    },
                    "version": _version(self.content),
                }
            )
        except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
            missing = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise ConfigError(f"is not a complete XGBoost model ({missing})") from None
        finally:
            self._note_unknown()

    def _parameters(self, parameters: dict[str, Any]) -> dict[str, str]:
        targets = int(parameters.get("num_target", 1))
        if targets > 1:
            raise ConfigError(f"predicts {targets} targets: treelite multi-target not supported")
        classes = int(parameters["num_class"])
        trees = len(_trees(self.content)["trees"])
        if not 0 <= classes <= max(trees, 1000):
            raise ConfigError(f"declares {classes} classes but has {trees} trees")
        return {
            "base_score": _base_score(parameters["base_score"], max(classes, 1)),
            "num_class": str(classes),
            "num_feature": str(int(parameters["num_feature"])),
            "num_target": "1",
        }

    def _booster(self, booster: dict[str, Any]) -> dict[str, Any]:
        name = booster["name"]
        model = _trees(self.content)
        trees, classes = model["trees"], model["tree_info"]
        if not isinstance(trees, list) or len(trees) != len(classes):
            raise ConfigError(f"has {len(trees)} trees but 'tree_info' for {len(classes)}")
        highest = max(1, int(self.content["learner"]["learner_model_param"]["num_class"]))
        if len(classes) and not 0 <= np.min(classes) <= np.max(classes) < highest:
            raise ConfigError("is damaged: 'tree_info' names a class that does not exist")
        if np.size(model.get("cats", {}).get("enc", ())):
            self.notes.append("the model was trained on named categories: send their codes, in training's order")
        kept = {
            "gbtree_model_param": {
                "num_trees": str(len(trees)),
                "num_parallel_tree": str(model["gbtree_model_param"].get("num_parallel_tree", "1")),
            },
            "tree_info": classes,
            "trees": [repaired_tree(index, tree) for index, tree in enumerate(trees)],
        }
        if name != "dart":
            return {"name": "gbtree", "model": kept}
        return {"name": name, "gbtree": {"name": "gbtree", "model": kept}, "weight_drop": booster["weight_drop"]}

    def _note_unknown(self) -> None:
        """Say which fields were left out because nobody here knows them."""
        learner = self.content["learner"]
        try:
            model = _trees(self.content)
            unknown = set().union(*(tree.keys() for tree in model["trees"])) - TREE_FIELDS
            levels = (self.content, learner, model, learner["learner_model_param"])
            for known, level in zip(_KNOWN.values(), levels, strict=True):
                unknown |= level.keys() - known
        except (KeyError, TypeError, AttributeError):
            return  # the file is refused with a better message than this one
        if unknown:
            fields = ", ".join(f"'{name}'" for name in sorted(unknown))
            self.notes.append(f"fields of a newer XGBoost that do not change how trees are read were ignored: {fields}")
        if _version(self.content)[0] > _NEWEST_KNOWN:
            self.notes.append("the file comes from a newer major version of XGBoost than any known here")


def _known_objective(name: str) -> str:
    """The objective under a name that treelite 4.7 has too (4.8 needs Python 3.11): both answer the plain sum."""
    return "reg:squarederror" if name == "reg:absoluteerror" else name


def version_of(data: bytes) -> str:
    """The version an XGBoost JSON file says it was written by, '' where it does not: for error messages."""
    found = _VERSION_TEXT.search(data)
    return "XGBoost " + b".".join(found.groups()).decode() if found else ""


def _version(content: dict[str, Any]) -> list[int]:
    version = [int(part) for part in content.get("version", ())]
    return version if len(version) == 3 else [1, 0, 0]


def _check_booster(name: str) -> None:
    if name == "gblinear":
        raise ConfigError("is a linear booster (gblinear), which has no trees: serve it as ONNX")
    if name not in _BOOSTERS:
        raise ConfigError(f"has the booster '{name}', which is none of {', '.join(_BOOSTERS)}")


def _trees(content: dict[str, Any]) -> dict[str, Any]:
    booster = content["learner"]["gradient_booster"]
    model: dict[str, Any] = booster["gbtree"]["model"] if booster["name"] == "dart" else booster["model"]
    return model


def _base_score(score: Any, classes: int) -> str:
    """The intercept as one number or, since XGBoost 3.1, one per class; treelite wants decimal points."""
    try:
        values = [float(part) for part in str(score).strip("[]").split(",")]
    except ValueError:
        raise ConfigError(f"has the base_score {score!r}, which is not a number or a list of numbers") from None
    if len(values) not in (1, classes):
        raise ConfigError(f"has {len(values)} values of base_score for {classes} classes")
    texts = [format(value, ".9E") for value in values]
    return texts[0] if len(texts) == 1 else f"[{','.join(texts)}]"


def dump_json(content: Any) -> bytes:
    """JSON of ``content`` (numpy arrays included), with NaN and Infinity spelled as XGBoost spells them."""
    text = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    if b"null" not in text:
        return text
    # orjson writes null for what strict JSON cannot say.
    return json.dumps(content, default=lambda value: value.tolist()).encode()
