"""What is inside a release of NVIDIA Triton, as far as it decides which model files load there.

From Triton's ``docs/introduction/compatibility.md`` (ONNX Runtime, Python) and the FIL backend's
``docs/model_support.md`` (treelite). What ONNX Runtime takes was measured with its wheels: a one-node
model of each IR version and opset was loaded. What treelite takes, too: its versions 4.3 and 4.4 load
the JSON of XGBoost 3.0, refuse that of 3.2, and load the checkpoints of version 4.8.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeVar

from bident.errors import invalid_arg

_T = TypeVar("_T")
Version = tuple[int, int]
"""Year and month of a release, or major and minor of anything else."""

_FIRST: Version = (22, 8)
"""Before it, a treelite checkpoint had to be of exactly the version that the release was built with."""

_RUNTIMES: dict[Version, Version] = {
    (24, 4): (1, 17),
    (24, 5): (1, 18),
    (24, 9): (1, 19),
    (24, 12): (1, 20),
    (25, 3): (1, 21),
    (25, 5): (1, 22),
    (25, 8): (1, 23),
    (26, 2): (1, 24),
    (26, 7): (1, 27),
    (26, 8): (1, 28),
}
_ONNX: dict[Version, tuple[int, int]] = {
    (1, 17): (9, 20),
    (1, 18): (10, 21),
    (1, 19): (10, 21),
    (1, 20): (10, 21),
    (1, 21): (10, 22),
    (1, 22): (10, 22),
    (1, 23): (11, 23),
    (1, 24): (13, 25),
    (1, 27): (13, 26),
    (1, 28): (13, 26),
}
"""The highest IR version and opset that loads."""
_PYTHONS: dict[Version, Version] = {(24, 4): (3, 10), (24, 11): (3, 12)}
_TREELITES: dict[Version, int] = {(22, 8): 3, (24, 3): 4}
"""The major version of the checkpoints that it reads."""
_XGBOOSTS: dict[Version, Version | None] = {(22, 8): (1, 6), (24, 3): (3, 0), (25, 12): None}
"""The newest XGBoost whose JSON it reads; None where that is not known."""
_UBJSON: Version = (24, 10)
_IS_CLASSIFIER: Version = (25, 9)


@dataclass(frozen=True, order=True)
class Release:
    """One release of Triton; what is not known of it is None."""

    year: int
    month: int

    def __str__(self) -> str:
        return f"Triton {self.year}.{self.month:02}"

    @property
    def runtime(self) -> Version | None:
        """Its ONNX Runtime."""
        return self._since(_RUNTIMES)

    @property
    def onnx(self) -> tuple[int, int] | None:
        """The highest IR version and the highest opset that its ONNX Runtime loads."""
        return _ONNX.get(self.runtime) if self.runtime else None

    @property
    def python(self) -> Version | None:
        """The Python that its Python backend was built for."""
        return self._since(_PYTHONS)

    @property
    def treelite(self) -> int:
        """The major version of the treelite checkpoints that it reads."""
        return self._since(_TREELITES) or max(_TREELITES.values())

    @property
    def xgboost(self) -> Version | None:
        """The newest XGBoost whose JSON its treelite reads."""
        return self._since(_XGBOOSTS)

    @property
    def reads_ubjson(self) -> bool:
        """Whether ``model_type: xgboost_ubj`` exists."""
        return (self.year, self.month) >= _UBJSON

    @property
    def knows_is_classifier(self) -> bool:
        """Whether ``is_classifier`` can stand for ``output_class``."""
        return (self.year, self.month) >= _IS_CLASSIFIER

    def _since(self, table: dict[Version, _T]) -> _T | None:
        """The row of the newest release that is not newer than this one."""
        rows = [since for since in table if since <= (self.year, self.month)]
        return table[max(rows)] if rows else None


def read_target(text: str) -> Release | None:
    """What ``--target`` says: a release, or None for Bident itself. Raises INVALID_ARG."""
    if text in ("", "bident"):
        return None
    found = re.fullmatch(r"triton:(\d\d)\.(\d\d)", text)
    if not found or not 1 <= int(found[2]) <= 12:
        raise invalid_arg(f"no target '{text}': write 'bident', or a release as in 'triton:25.05'")
    release = Release(int(found[1]), int(found[2]))
    if (release.year, release.month) < _FIRST:
        raise invalid_arg(f"nothing is known here of '{text}'; targets start with 'triton:{_FIRST[0]}.{_FIRST[1]:02}'")
    return release
