"""What settings say about each other: deprecated names, defaults that follow others, contradictions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bident.errors import SettingsError
from bident.settings.cache import cache_bytes
from bident.settings.places import user_cache_directory
from bident.settings.security import Exposure, check_exposure, check_tls
from bident.settings.setting import Setting
from bident.settings.tensor import TABLE, TensorSettings
from bident.settings.values import Named


def settle(settings: TensorSettings, given: frozenset[str]) -> TensorSettings:
    """``settings`` with all that follows from them. ``given``: the names of those that were not defaults.

    Raises SettingsError where two settings contradict each other.
    """
    _check_load_model(settings)
    _check_cache(given)
    for door in ("http", "grpc"):
        _check_tls(settings, door)
    _check_workers(settings)
    changes: dict[str, Any] = {
        "model_cache_directory": settings.model_cache_directory or user_cache_directory(),
        "metrics_address": settings.metrics_address or settings.http_address,
        "disable_auto_complete_config": settings.disable_auto_complete_config or settings.strict_model_config,
        "trace_config": settings.trace_config + tuple(_old_trace_flags(settings, given)),
        "notices": tuple(_notice(row) for row in TABLE if row.name in given and _has_notice(row)),
    }
    if settings.response_cache_byte_size:
        changes["cache_config"] = {"local": {"size": str(settings.response_cache_byte_size)}}
    settled = replace(settings, **changes)
    cache_bytes(settled.cache_config)
    _check_ports(settled)
    check_exposure(_exposures(settled), keys=bool(settled.api_key_file), insecure=settled.insecure)
    return settled


def _check_load_model(settings: TensorSettings) -> None:
    if settings.load_model and settings.model_control_mode != "explicit":
        raise SettingsError(
            "Use of '--load-model' requires setting '--model-control-mode=explicit' as well; "
            f"with '{settings.model_control_mode}' the repository decides what is loaded"
        )
    if "*" in settings.load_model and len(settings.load_model) > 1:
        raise SettingsError(
            "Wildcard model name '*' must be the ONLY startup model if specified at all; "
            f"got --load-model {', '.join(settings.load_model)}"
        )


def _check_cache(given: frozenset[str]) -> None:
    if {"cache_config", "response_cache_byte_size"} <= given:
        raise SettingsError(
            "Incompatible flags --response-cache-byte-size and --cache-config both provided; keep --cache-config"
        )


def _check_tls(settings: TensorSettings, door: str) -> None:
    check_tls(
        f"--{door}-",
        used=getattr(settings, f"{door}_use_ssl"),
        mutual=getattr(settings, f"{door}_use_ssl_mutual"),
        files={
            "server-cert": getattr(settings, f"{door}_server_cert"),
            "server-key": getattr(settings, f"{door}_server_key"),
            "root-cert": getattr(settings, f"{door}_root_cert"),
        },
    )


def _check_workers(settings: TensorSettings) -> None:
    if settings.workers > 1 and sys.platform == "win32":
        raise SettingsError(
            f"--workers={settings.workers}: on Windows no two processes can share a port; run servers on ports of "
            "their own behind a load balancer"
        )
    if settings.workers > 1 and not settings.allow_http and not settings.allow_grpc:
        raise SettingsError(f"--workers={settings.workers} share the HTTP and the gRPC port, and neither is opened")


def _exposures(settings: TensorSettings) -> list[Exposure]:
    """The doors that open. The metrics page has the HTTP door's certificates."""
    doors = (
        (settings.allow_http, "--http-address", settings.http_address, settings.http_use_ssl_mutual),
        (settings.allow_grpc, "--grpc-address", settings.grpc_address, settings.grpc_use_ssl_mutual),
        (settings.allow_metrics, "--metrics-address", settings.metrics_address, settings.http_use_ssl_mutual),
    )
    return [Exposure(flag, address, mutual) for opens, flag, address, mutual in doors if opens]


def _check_ports(settings: TensorSettings) -> None:
    """Two doors on one address and port; port 0 stands for a free one and never collides."""
    doors = (
        ("HTTP", settings.allow_http, settings.http_address, settings.http_port, "--http-port"),
        ("GRPC", settings.allow_grpc, settings.grpc_address, settings.grpc_port, "--grpc-port"),
        ("metrics", settings.allow_metrics, settings.metrics_address, settings.metrics_port, "--metrics-port"),
    )
    opened = [door for door in doors if door[1] and door[3]]
    clashes = [
        f"The server cannot listen to {first[0]} requests and {second[0]} requests at the same address and port "
        f"{first[2]}:{first[3]}; change {second[4]}"
        for index, first in enumerate(opened)
        for second in opened[index + 1 :]
        if first[2:4] == second[2:4]
    ]
    if clashes:
        raise SettingsError("\n".join(clashes))


def _old_trace_flags(settings: TensorSettings, given: frozenset[str]) -> Iterator[Named]:
    if "trace_file" in given:
        yield Named("triton", "file", settings.trace_file)
    for level in settings.trace_level:
        yield Named("", "level", level)
    if "trace_rate" in given:
        yield Named("", "rate", str(settings.trace_rate))
    if "trace_count" in given:
        yield Named("", "count", str(settings.trace_count))
    if "trace_log_frequency" in given:
        yield Named("triton", "log-frequency", str(settings.trace_log_frequency))


def _has_notice(row: Setting) -> bool:
    return bool(row.replacement or row.effect)


def _notice(row: Setting) -> str:
    parts = []
    if row.replacement:
        parts.append(f"is deprecated, use {row.replacement}")
    if row.effect:
        when, _, why = row.effect.partition(": ")
        parts.append(f"has no effect{when.removeprefix('none')}: {why}")
    return f"{row.flag} {' and '.join(parts)}"
