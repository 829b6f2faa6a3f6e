"""What the machine is doing: processor and memory, for the metrics page."""

from __future__ import annotations

import psutil


class Host:
    """Reads the host's load. The first processor reading is 0: it is a rate between two readings."""

    def __init__(self) -> None:
        psutil.cpu_percent(None)

    def processor_utilization(self) -> float:
        """Share of all cores that was busy since the last call, 0 to 1."""
        return float(psutil.cpu_percent(None)) / 100.0

    def memory_total(self) -> int:
        """Bytes of memory this machine has."""
        return int(psutil.virtual_memory().total)

    def memory_used(self) -> int:
        """Bytes of memory in use."""
        return int(psutil.virtual_memory().used)
