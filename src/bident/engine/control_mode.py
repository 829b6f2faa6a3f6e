"""``--model-control-mode``: who decides what is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from bident.errors import Code, ServeError


@dataclass(frozen=True)
class ControlMode:
    """``none``: what is there at the start; ``poll``: the repository; ``explicit``: clients."""

    name: str

    @property
    def is_explicit(self) -> bool:
        """Whether clients may load and unload."""
        return self.name == "explicit"

    def check_explicit(self) -> None:
        """Raise UNAVAILABLE, in Triton's words, if clients may not load and unload."""
        if not self.is_explicit:
            raise ServeError(
                Code.UNAVAILABLE,
                "explicit model load / unload is not allowed if polling is enabled, nor in mode none: this server runs "
                f"in mode {self.name}; start it with --model-control-mode=explicit",
            )
