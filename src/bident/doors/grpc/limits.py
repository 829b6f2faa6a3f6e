"""What one client may cost, and for how long a connection lives."""

from __future__ import annotations

from dataclasses import dataclass, field

import psutil

from bident.doors.grpc.packing import LEVELS
from bident.settings import TensorSettings

MOST_MESSAGE = 2**31 - 1
"""The largest message gRPC's clients can make."""
_HELD_PART = 3
"""One in so many parts of the machine's memory may be held for clients: to unpack a message takes twice its size."""


@dataclass(frozen=True)
class Keepalive:
    """gRPC's flags of the same names; times in seconds, 0 is never or no limit where that makes sense."""

    time: float = 7200.0
    timeout: float = 20.0
    permit_without_calls: bool = False
    max_pings_without_data: int = 2
    min_recv_ping_interval_without_data: float = 300.0
    max_ping_strikes: int = 2
    max_connection_age: float = 0.0
    max_connection_age_grace: float = 0.0


@dataclass(frozen=True)
class GrpcLimits:
    """What one client may cost. Sizes in bytes, times in seconds. 0 is no limit for ``connections`` and times."""

    head_bytes: int = 64 * 1024
    """A call's metadata, as HTTP/2 counts it (32 bytes more for each field)."""
    message_bytes: int = MOST_MESSAGE
    """One message, also after decompression."""
    held_bytes: int = 2 * MOST_MESSAGE
    """Unfinished messages and answers that wait for their clients, of all connections together."""
    unsent_bytes: int = 16 * 1024 * 1024
    """A client that leaves more than these of its answers waiting gets no further calls begun."""
    streams: int = 2048
    """Calls at the same time on one connection; a client's library makes further ones wait."""
    calls: int = 200_000
    """Calls at the same time on all connections; beyond it each connection may have ``crowded_streams``."""
    crowded_streams: int = 32
    connections: int = 16384
    read_seconds: float = 30.0
    """For the start of a connection, and for the next part of a message that has begun."""
    write_seconds: float = 60.0
    """For a client's machine to take some of what has been sent."""
    stall_seconds: float = 300.0
    """For a client to open the windows of HTTP/2 for some of what waits behind them."""
    keepalive: Keepalive = field(default_factory=Keepalive)
    compression_level: int = 0
    """zlib's level for the answers of inference, for clients that take compressed ones; 0 is not at all."""

    @classmethod
    def of(cls, settings: TensorSettings) -> GrpcLimits:
        """What ``settings`` say; their times are in milliseconds."""
        keepalive = Keepalive(
            time=settings.grpc_keepalive_time / 1000,
            timeout=settings.grpc_keepalive_timeout / 1000,
            permit_without_calls=settings.grpc_keepalive_permit_without_calls,
            max_pings_without_data=settings.grpc_http2_max_pings_without_data,
            min_recv_ping_interval_without_data=settings.grpc_http2_min_recv_ping_interval_without_data / 1000,
            max_ping_strikes=settings.grpc_http2_max_ping_strikes,
            max_connection_age=settings.grpc_max_connection_age / 1000,
            max_connection_age_grace=settings.grpc_max_connection_age_grace / 1000,
        )
        level = LEVELS[settings.grpc_infer_response_compression_level]
        held = min(cls.held_bytes, psutil.virtual_memory().total // _HELD_PART)
        return cls(keepalive=keepalive, compression_level=level, held_bytes=held)


class Held:
    """How many bytes are kept for clients of one server, and how many may be."""

    __slots__ = ("limit", "size")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0

    @property
    def is_full(self) -> bool:
        """Whether nothing more can be kept."""
        return self.size > self.limit


class Patience:
    """How much of what costs us more than the client is taken from one connection: a bucket that refills."""

    __slots__ = ("_at", "_left", "_most", "_per_second")

    def __init__(self, most: float, per_second: float) -> None:
        self._most = most
        self._per_second = per_second
        self._left = most
        self._at = 0.0

    def spend(self, now: float, cost: float = 1.0) -> bool:
        """Take ``cost`` out at the time ``now`` (seconds); False when there is not enough left."""
        self._left = min(self._most, self._left + (now - self._at) * self._per_second)
        self._at = now
        self._left -= cost
        return self._left >= 0
