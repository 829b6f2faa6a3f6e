"""How much to measure, and where to keep what that takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Plan:
    """Given to every benchmark. ``workspace`` is a folder of the run's own, deleted at its end."""

    workspace: Path
    quick: bool = False

    @property
    def rounds(self) -> int:
        """Paired rounds of a comparison."""
        return 3 if self.quick else 5

    @property
    def seconds(self) -> int:
        """Duration of one contender's turn under load."""
        return 1 if self.quick else 3

    @property
    def soak_requests(self) -> int:
        """Requests over which memory has to stay flat."""
        return 50_000 if self.quick else 1_000_000

    @property
    def varied_requests(self) -> int:
        """Requests of all sizes over which the memory of a Python model has to stay flat."""
        return 3_000 if self.quick else 100_000

    def log(self, name: str) -> Path:
        """Where the server called ``name`` writes its log."""
        return self.workspace / f"{name}.log"
