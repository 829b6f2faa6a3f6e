"""The listeners that settings ask for, each with what it serves and what protects it."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from bident import __version__
from bident.doors.access import GRPC_PREFIX, Access
from bident.doors.forwarding import Forwarding
from bident.doors.grpc.limits import GrpcLimits
from bident.doors.grpc.server import GrpcServer
from bident.doors.grpc.service import GrpcService
from bident.doors.http.limits import HttpLimits
from bident.doors.http.server import HttpServer
from bident.doors.http.v2 import V2
from bident.doors.metrics import MetricsPage
from bident.doors.safeguards import Safeguards
from bident.engine.clients import Clients
from bident.engine.engine import Engine
from bident.settings import TensorSettings
from bident.sockets import Listening

HTTP = "HTTPService"
GRPC = "GRPCInferenceService"
METRICS = "Metrics Service"

Server = HttpServer | GrpcServer


class Door(NamedTuple):
    """A listener that has not been started, and the context it is to be started with."""

    server: Server
    context: ssl.SSLContext | None


def wanted(settings: TensorSettings) -> list[Listening]:
    """The services that ``settings`` open, and where."""
    doors = []
    if settings.allow_grpc:
        doors.append(Listening(GRPC, settings.grpc_address, settings.grpc_port, settings.reuse_grpc_port))
    if settings.allow_http:
        doors.append(Listening(HTTP, settings.http_address, settings.http_port, settings.reuse_http_port))
    if settings.allow_metrics:
        address = settings.metrics_address or settings.http_address
        doors.append(Listening(METRICS, address, settings.metrics_port, settings.reuse_http_port))
    return doors


def at_ports(settings: TensorSettings, ports: Mapping[str, int]) -> TensorSettings:
    """``settings`` with the ports that services really have, by service: where 0 was to find a free one."""
    return replace(
        settings,
        http_port=ports.get(HTTP, settings.http_port),
        grpc_port=ports.get(GRPC, settings.grpc_port),
        metrics_port=ports.get(METRICS, settings.metrics_port),
    )


class Opening:
    """Makes the door of each service. ``clients`` counts those whose requests may wait for each other."""

    def __init__(
        self, settings: TensorSettings, engine: Engine, page: MetricsPage, safeguards: Safeguards, clients: Clients
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._page = page
        self._safeguards = safeguards
        self._clients = clients
        self._makers: dict[str, Callable[[], Door]] = {HTTP: self._http, GRPC: self._grpc, METRICS: self._metrics}

    def door(self, service: str) -> Door:
        """The door of ``service``, one of those that are :func:`wanted`."""
        return self._makers[service]()

    def _http(self) -> Door:
        settings = self._settings
        forwarding = Forwarding.of(settings.http_header_forward_pattern)
        v2 = V2(
            self._engine,
            name=settings.server_id,
            version=__version__,
            max_input_bytes=settings.http_max_input_size,
            forwarding=forwarding,
            compatible=settings.triton_compat,
        )
        server = HttpServer(
            v2.routes(),
            HttpLimits.of(self._settings),
            HTTP,
            self._clients,
            access=Access.of(settings.http_restricted_api, self._safeguards.keys),
            keeps_names=forwarding is not None,
        )
        return Door(server, self._safeguards.http)

    def _grpc(self) -> Door:
        settings = self._settings
        service = GrpcService(
            self._engine,
            name=settings.server_id,
            version=__version__,
            forwarding=Forwarding.of(settings.grpc_header_forward_pattern),
        )
        access = Access.of(settings.grpc_restricted_protocol, self._safeguards.keys, prefix=GRPC_PREFIX)
        server = GrpcServer(service, GrpcLimits.of(settings), GRPC, self._clients, access=access)
        return Door(server, self._safeguards.grpc)

    def _metrics(self) -> Door:
        # Who looks at the metrics sends no request that another could wait for.
        access = Access.of((), self._safeguards.metrics_keys)
        server = HttpServer(self._page.routes(), HttpLimits.of(self._settings), METRICS, Clients(), access=access)
        return Door(server, self._safeguards.http)
