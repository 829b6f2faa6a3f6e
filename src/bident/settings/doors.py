"""The settings of the doors: HTTP, gRPC, metrics, and the two cloud front ends Triton has."""

# ruff: noqa: RUF009 - setting() returns a dataclass field, not a default value

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bident.settings.setting import CPU_ONLY, setting
from bident.settings.values import (
    BOOLEAN,
    COUNT,
    PAIRS,
    PATTERN,
    PORT,
    REAL,
    RESTRICTIONS,
    TEXT,
    Api,
    RestrictedApi,
    choice,
    whole,
)

_SAGEMAKER = "none yet: there is no SageMaker door"
_VERTEX = "none yet: there is no Vertex AI door"
_INT_MAX = 2**31 - 1
_APIS = ", ".join(api.value for api in Api)


@dataclass(frozen=True)
class Http:
    """The HTTP door."""

    title: ClassVar[str] = "HTTP"

    allow_http: bool = setting(BOOLEAN, True, "Open the HTTP door.")
    http_address: str = setting(
        TEXT, "127.0.0.1", "Address it binds to. Loopback unless told otherwise; 0.0.0.0 is every network."
    )
    http_port: int = setting(PORT, 8000, "Port it listens on; 0 picks a free one.")
    reuse_http_port: bool = setting(BOOLEAN, False, "Share the port with other servers that set this too.")
    http_header_forward_pattern: str = setting(
        PATTERN, "", "Headers in whose name this is found become request parameters."
    )
    http_thread_count: int = setting(
        whole(1), 8, "Threads that answer HTTP requests.", effect="none: one event loop answers all connections"
    )
    http_max_input_size: int = setting(
        whole(1), 64 * 1024 * 1024, "Largest request body in bytes, also after decompression."
    )
    http_restricted_api: tuple[RestrictedApi, ...] = setting(
        RESTRICTIONS,
        (),
        f"APIs that are answered only to requests with this header: {_APIS}. Repeat it for several.",
    )
    http_use_ssl: bool = setting(BOOLEAN, False, "Encrypt with TLS; the metrics door too.")
    http_use_ssl_mutual: bool = setting(
        BOOLEAN, False, "Encrypt with TLS and ask clients for a certificate too; at the metrics door too."
    )
    http_server_cert: str = setting(TEXT, "", "PEM file of the server's certificate, its chain after it.")
    http_server_key: str = setting(TEXT, "", "PEM file of the server's key.")
    http_root_cert: str = setting(TEXT, "", "PEM file of the root certificate for clients.")
    http_max_header_size: int = setting(whole(1024), 64 * 1024, "Largest request line and headers together, in bytes.")
    http_header_timeout_secs: float = setting(REAL, 30.0, "Seconds a client may take to send a request's headers.")
    http_idle_timeout_secs: float = setting(
        REAL, 75.0, "Seconds after which a connection is closed on which nothing moves; 0 is never."
    )
    http_max_connections: int = setting(COUNT, 16384, "Connections open at the same time; 0 is no limit.")


@dataclass(frozen=True)
class Grpc:
    """The gRPC door."""

    title: ClassVar[str] = "gRPC"

    allow_grpc: bool = setting(BOOLEAN, True, "Open the gRPC door.")
    grpc_address: str = setting(
        TEXT, "127.0.0.1", "Address it binds to. Loopback unless told otherwise, whatever --http-address is."
    )
    grpc_port: int = setting(PORT, 8001, "Port it listens on; 0 picks a free one.")
    reuse_grpc_port: bool = setting(BOOLEAN, False, "Share the port with other servers that set this too.")
    grpc_header_forward_pattern: str = setting(
        PATTERN, "", "Metadata in whose key this is found becomes request parameters."
    )
    grpc_infer_thread_count: int = setting(
        whole(1), 2, "Threads that answer gRPC requests.", effect="none: one event loop answers all connections"
    )
    grpc_infer_allocation_pool_size: int = setting(
        COUNT, 8, "Request objects kept for reuse.", effect="none: Python's allocator does that"
    )
    grpc_max_response_pool_size: int = setting(
        COUNT, _INT_MAX, "Response objects kept for reuse.", effect="none: Python's allocator does that"
    )
    grpc_use_ssl: bool = setting(BOOLEAN, False, "Encrypt with TLS.")
    grpc_use_ssl_mutual: bool = setting(BOOLEAN, False, "Encrypt with TLS and ask clients for a certificate too.")
    grpc_server_cert: str = setting(TEXT, "", "PEM file of the server's certificate, its chain after it.")
    grpc_server_key: str = setting(TEXT, "", "PEM file of the server's key.")
    grpc_root_cert: str = setting(TEXT, "", "PEM file of the root certificate for clients.")
    grpc_infer_response_compression_level: str = setting(
        choice("none", "low", "medium", "high"), "none", "How hard answers are compressed."
    )
    grpc_keepalive_time: int = setting(COUNT, 7_200_000, "Milliseconds of silence before a keepalive ping.")
    grpc_keepalive_timeout: int = setting(COUNT, 20_000, "Milliseconds to wait for the answer to a ping.")
    grpc_keepalive_permit_without_calls: bool = setting(BOOLEAN, False, "Ping connections that have no call in flight.")
    grpc_http2_max_pings_without_data: int = setting(COUNT, 2, "Pings sent with no data in between; 0 is no limit.")
    grpc_http2_min_recv_ping_interval_without_data: int = setting(
        COUNT, 300_000, "Milliseconds that must lie between two pings of a silent client."
    )
    grpc_http2_max_ping_strikes: int = setting(
        COUNT, 2, "Pings that may come too early before the client is sent away; 0 is any number."
    )
    grpc_max_connection_age: int = setting(COUNT, 0, "Milliseconds a connection may live; 0 is no limit.")
    grpc_max_connection_age_grace: int = setting(
        COUNT, 0, "Milliseconds its calls may go on after that; 0 is no limit."
    )
    grpc_restricted_protocol: tuple[RestrictedApi, ...] = setting(
        RESTRICTIONS,
        (),
        f"APIs that are answered only to calls with the metadata triton-grpc-protocol-<header>: {_APIS}.",
    )


@dataclass(frozen=True)
class Metrics:
    """The metrics door."""

    title: ClassVar[str] = "Metrics"

    allow_metrics: bool = setting(BOOLEAN, True, "Open the metrics door.")
    allow_cpu_metrics: bool = setting(BOOLEAN, True, "Include CPU and memory use.")
    allow_gpu_metrics: bool = setting(BOOLEAN, True, "Include GPU use.", effect=CPU_ONLY)
    metrics_address: str = setting(TEXT, "", "Address it binds to; without it, --http-address.")
    metrics_port: int = setting(PORT, 8002, "Port it listens on; 0 picks a free one.")
    metrics_interval_ms: float = setting(
        REAL,
        2000.0,
        "Milliseconds that lie at least between two measurements of CPU and memory.",
    )
    metrics_config: dict[str, str] = setting(
        PAIRS,
        {},
        "counter_latencies=false, summary_latencies=true, summary_quantiles=<quantile>:<error>,... or "
        "histogram_latencies=true; repeat it for several.",
    )


@dataclass(frozen=True)
class Clouds:
    """Front ends of two clouds, accepted so that command lines carry over."""

    title: ClassVar[str] = "SageMaker and Vertex AI"

    allow_sagemaker: bool = setting(BOOLEAN, False, "Open the SageMaker door.", effect=_SAGEMAKER)
    sagemaker_port: int = setting(PORT, 8080, "Its port.", effect=_SAGEMAKER)
    sagemaker_safe_port_range: str = setting(TEXT, "", "Ports the other doors may use.", effect=_SAGEMAKER)
    sagemaker_thread_count: int = setting(whole(1), 8, "Its threads.", effect=_SAGEMAKER)
    allow_vertex_ai: bool = setting(BOOLEAN, False, "Open the Vertex AI door.", effect=_VERTEX)
    vertex_ai_port: int = setting(PORT, 8080, "Its port.", effect=_VERTEX)
    vertex_ai_thread_count: int = setting(whole(1), 8, "Its threads.", effect=_VERTEX)
    vertex_ai_default_model: str = setting(TEXT, "", "The model it asks when none is named.", effect=_VERTEX)
