"""TensorSettings: every setting of the tensor server, and the table they are read from."""

from __future__ import annotations

from dataclasses import dataclass

from bident.settings.doors import Clouds, Grpc, Http, Metrics
from bident.settings.engine import BackendSettings, Cache, Devices, RateLimit, SharedMemory, Tracing
from bident.settings.security import Security
from bident.settings.server import Logging, Repository, Server
from bident.settings.setting import Setting, rows

GROUPS = (
    Server,
    Logging,
    Repository,
    Http,
    Grpc,
    Metrics,
    Security,
    Tracing,
    RateLimit,
    Cache,
    SharedMemory,
    BackendSettings,
    Clouds,
    Devices,
)

TABLE: tuple[Setting, ...] = tuple(row for group in GROUPS for row in rows(group))
"""Every setting once, in the order of ``--help`` and of the reference page."""


@dataclass(frozen=True)
class TensorSettings(
    Server,
    Logging,
    Repository,
    Http,
    Grpc,
    Metrics,
    Security,
    Tracing,
    RateLimit,
    Cache,
    SharedMemory,
    BackendSettings,
    Clouds,
    Devices,
):
    """The tensor server's settings, all resolved. Attributes are the flags with underscores.

    ``notices`` are lines for the log at start: settings that were given and do nothing, or that go
    by another name now.
    """

    notices: tuple[str, ...] = ()
