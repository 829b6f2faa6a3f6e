"""Processors that packages are not made for."""

from __future__ import annotations

import importlib.util
import platform
import struct
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bident.doctor.check import Finding, Patient
from bident.doctor.machine.surroundings import MachineCheck, Surroundings
from bident.text.runner.machine import missing_flags


def _has_text_engine() -> bool:
    return importlib.util.find_spec("xllamacpp") is not None


class ProcessorFeatures(MachineCheck):
    """llama.cpp dies of an illegal instruction where the processor is older than its package."""

    name = "processor-features"
    title = "The processor lacks instructions that the text engine is compiled for"

    def __init__(
        self, description: Path = Path("/proc/cpuinfo"), has_text_engine: Callable[[], bool] = _has_text_engine
    ) -> None:
        super().__init__()
        self._description = description
        self._has_text_engine = has_text_engine

    def examine(self, patient: Patient) -> Iterator[Finding]:
        try:
            missing = missing_flags(self._description.read_text(errors="replace"))
        except OSError:
            return
        if missing and self._has_text_engine():
            yield self._broken(
                "xllamacpp",
                f"the processor has no {', '.join(missing)}",
                "the package of llama.cpp is compiled for processors from about 2013 on; virtual machines may hide "
                "these features too",
                "python -m pip install --force-reinstall --no-deps --no-binary xllamacpp xllamacpp (needs a compiler); "
                "in a virtual machine pass the host's processor through",
            )


@dataclass(frozen=True)
class Interpreter:
    """What this Python was compiled for, and what runs it."""

    machine: str = field(default_factory=platform.machine)
    bits: int = struct.calcsize("P") * 8

    def is_translated(self, platform_name: str) -> bool:
        """Whether macOS translates its instructions (Rosetta)."""
        if platform_name != "darwin":
            return False
        command = ["sysctl", "-n", "sysctl.proc_translated"]
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=5, check=False).stdout.strip() == "1"
        except (OSError, subprocess.TimeoutExpired):
            return False


class Emulation(MachineCheck):
    """An interpreter for another processor than the machine's."""

    name = "emulation"
    title = "Python is made for another processor than this machine's"

    def __init__(self, surroundings: Surroundings | None = None, interpreter: Interpreter | None = None) -> None:
        super().__init__(surroundings)
        self._interpreter = interpreter or Interpreter()

    def examine(self, patient: Patient) -> Iterator[Finding]:
        if self._interpreter.bits < 64:
            yield self._broken(
                self._here.prefix,
                f"this Python has {self._interpreter.bits} bits",
                "onnxruntime and llama.cpp are published for 64 bits alone",
                "install a 64-bit Python, and make the environment anew with it",
            )
        if self._interpreter.is_translated(self._here.platform):
            yield self._risk(
                self._here.prefix,
                f"this Python is for {self._interpreter.machine}, and Rosetta translates it",
                "the environment was made with a Python for Intel on a Mac with an Apple processor: everything is "
                "slower, and AVX2 may be missing",
                "make the environment anew with a Python for arm64: arch -arm64 python3 -m venv .venv",
            )
