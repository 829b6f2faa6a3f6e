"""Why a Triton did not start or has ended, out of what it has printed."""

from __future__ import annotations

import json
import re
from collections import deque

_ERROR = re.compile(r'(?:E\d{4} \S+|\S+ E) \d+ \S+\] (".*")$')
_WITHOUT_GPU = re.compile(
    "CudaDriverHelper has not been initialized|Failed to initialize NVML|DCGM unable to start|"
    "CUDA driver version is insufficient|no pinned memory pool"
)
"""What a Triton says that looks for a GPU in vain."""
_SERVES = re.compile(r"Started (?:HTTPService|GRPCInferenceService)")
_FAILED_LOAD = re.compile(r"failed to load '")
_ONLY_WAITS = re.compile(r"Timeout \d+: Found [1-9]\d* live models and 0 in-flight")
_WAITS_IN_VAIN = 3
_ENDS = "; \n"
"""How Triton ends some messages."""
_WHERE = "\n\nAt:\n"
"""After that the Python backend says where in which file, which is in the log already."""
_TWICE = "ERROR: Failed to create instance"
"""Is said again with the model's name."""
SUMMARY = "Triton ended after"
"""What the line begins with that sums up why."""
_KEPT = 12
_HINTS = (
    (
        re.compile(r"Stub process .* is not healthy"),
        "a model.py ended its interpreter, often by a package that was built for another numpy than it found",
    ),
    (
        re.compile(r"[Uu]nable to (?:initialize|create) shared memory|No space left on device|Bus error"),
        "Python models need room in /dev/shm: see 'df /dev/shm', and in a container raise shm_size",
    ),
    (
        re.compile(r"unable to find backend library|unable to find '.*' or '.*' for backend"),
        "this Triton has no such backend, and Bident has none either",
    ),
    (re.compile(r"Address already in use|failed to start \w+ (?:service|server)", re.IGNORECASE), "a port is taken"),
)


class Said:
    """What a Triton has printed: the errors among it, and the marks of known causes. It may be asked at any time."""

    has_served: bool = False
    """Whether its doors have opened."""
    waits_in_vain: bool = False
    """Whether it counts the seconds of its exit timeout for a model that will never go.

    Triton 2.51 does that after a reload has failed: something of that model stays with it.
    """

    def __init__(self, *, has_gpu: bool) -> None:
        """Without a GPU, nobody need hear that there is none."""
        self._has_gpu = has_gpu
        self._errors: deque[str] = deque(maxlen=_KEPT)
        self._hints: dict[str, None] = {}
        self._has_failed_load = False
        self._waits = 0

    def hear(self, line: str) -> bool:
        """Take in one line; False where nobody need see it."""
        if not self._has_gpu and _WITHOUT_GPU.search(line):
            return False
        self.has_served = self.has_served or bool(_SERVES.search(line))
        self._has_failed_load = self._has_failed_load or bool(_FAILED_LOAD.search(line))
        self._waits = self._waits + 1 if _ONLY_WAITS.search(line) else 0
        self.waits_in_vain = self._has_failed_load and self._waits >= _WAITS_IN_VAIN
        if found := _ERROR.search(line):
            message = message_of(found[1])
            if message not in self._errors and not message.startswith(_TWICE):
                self._errors.append(message)
        for pattern, hint in _HINTS:
            if pattern.search(line):
                self._hints[hint] = None
        return True

    def causes(self) -> list[str]:
        """Its errors, the oldest first, then what they are a sign of."""
        return [*self._errors, *self._hints]


def message_of(literal: str) -> str:
    """The message that a line of Triton's log has as a JSON string, without what it ends in by habit."""
    try:
        message = json.loads(literal)
    except ValueError:  # some messages are not escaped
        message = literal.strip('"')
    return str(message).partition(_WHERE)[0].rstrip(_ENDS)
