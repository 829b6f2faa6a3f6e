"""What one client may cost, and how long it may take."""

from __future__ import annotations

from dataclasses import dataclass

from bident.settings import TensorSettings


@dataclass(frozen=True)
class HttpLimits:
    """What one client may cost. Sizes in bytes, times in seconds.

    0 is no limit for ``connections``, ``read_seconds`` and ``idle_seconds``.
    """

    head_bytes: int = 64 * 1024
    json_bytes: int = 64 * 1024 * 1024
    binary_bytes: int = 2**31 - 1
    small_body: int = 1024 * 1024
    connections: int = 16384
    read_seconds: float = 30.0
    write_seconds: float = 60.0
    idle_seconds: float = 75.0
    linger_seconds: float = 2.0

    def refusal(self, size: int, limit: int) -> tuple[int, str]:
        """Status and words for a body of ``size`` bytes against ``limit``."""
        if limit == self.json_bytes:
            return 413, (
                f"request JSON of {size} bytes exceeds the maximum allowed value of {limit} bytes. "
                f"Use --http-max-input-size to increase the limit."
            )
        return 413, f"request body of {size} bytes exceeds the maximum of {limit} bytes"

    @classmethod
    def of(cls, settings: TensorSettings) -> HttpLimits:
        """What ``settings`` say."""
        return cls(
            head_bytes=settings.http_max_header_size,
            json_bytes=settings.http_max_input_size,
            connections=settings.http_max_connections,
            read_seconds=settings.http_header_timeout_secs,
            idle_seconds=settings.http_idle_timeout_secs,
        )
