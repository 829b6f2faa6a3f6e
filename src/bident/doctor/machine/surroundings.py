"""Where servers would be started from here: environment, working directory, platform, and what these settle."""

from __future__ import annotations

import os
import sys
from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bident.doctor.check import Check, Finding, Fix, Weight
from bident.errors import SettingsError
from bident.settings import TensorSettings, TextSettings, parse_both_args

CONFIG_FILE = "bident.toml"
_ANY_ADDRESS = {"BIDENT_INSECURE": "true", "BIDENT_TEXT_INSECURE": "true"}
"""Settings are read to be looked at: whether they are safe is the business of two checks alone."""


@dataclass(frozen=True)
class Surroundings:
    """What checks of the machine look at; a test gives them another."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    directory: Path = Path()
    """The working directory: ``bident.toml`` and ``.bident`` are looked for in it."""
    platform: str = sys.platform
    prefix: Path = Path(sys.prefix)
    """The environment that this interpreter runs from."""

    @property
    def config_file(self) -> Path | None:
        """``bident.toml`` here; None where there is none."""
        path = self.directory / CONFIG_FILE
        return path if path.is_file() else None

    def strict_settings(self) -> tuple[TensorSettings, TextSettings]:
        """What servers would be started with here. Raises SettingsError where they would refuse."""
        return parse_both_args([], self.environ, self.config_file)

    def settings(self) -> tuple[TensorSettings, TextSettings]:
        """The same, on any address; the defaults where it is refused, which the check ``settings`` tells of."""
        try:
            return parse_both_args([], {**self.environ, **_ANY_ADDRESS}, self.config_file)
        except SettingsError:
            return parse_both_args([], {})


class MachineCheck(Check, ABC):
    """A check that needs no more than the surroundings."""

    def __init__(self, surroundings: Surroundings | None = None) -> None:
        self._here = surroundings or Surroundings()

    def _broken(self, where: object, seen: str, cause: str, cure: str, fix: Fix | None = None) -> Finding:
        return Finding(self.name, Weight.BROKEN, str(where), seen, cause, cure, fix)

    def _risk(self, where: object, seen: str, cause: str, cure: str, fix: Fix | None = None) -> Finding:
        return Finding(self.name, Weight.RISK, str(where), seen, cause, cure, fix)

    def _note(self, where: object, seen: str, cause: str, cure: str, fix: Fix | None = None) -> Finding:
        return Finding(self.name, Weight.NOTE, str(where), seen, cause, cure, fix)
