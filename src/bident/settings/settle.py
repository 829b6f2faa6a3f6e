"""What settings say about each other: deprecated names, defaults that follow others, contradictions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bident.errors import SettingsError
from bident.settings.places import user_cache_directory
from bident.settings.setting import Setting
from bident.settings.tensor import TABLE, TensorSettings
from bident.settings.values import Named


def settle(settings: TensorSettings, given: frozenset[str]) -> TensorSettings:
    """``settings`` with all that follows from them. ``given``: the names of those that were not defaults.

    Raises SettingsError where two settings contradict each other.
    """
    _check_refused(settings)
    _check_load_model(settings)
    _check_cache(given)
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
    _check_ports(settled)
    return settled


def _check_refused(settings: TensorSettings) -> None:
    """Protections that are not there yet: to serve without them would be to fail open."""
    refused = [row for row in TABLE if row.refused and getattr(settings, row.name) != row.default]
    if refused:
        raise SettingsError(
            "\n".join(
                f"{row.flag}: {row.effect.removeprefix('refused: ')}; Bident does not start rather than ignore it"
                for row in refused
            )
        )


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
    return bool(row.replacement or (row.effect and not row.refused))


def _notice(row: Setting) -> str:
    parts = []
    if row.replacement:
        parts.append(f"is deprecated, use {row.replacement}")
    if row.effect:
        when, _, why = row.effect.partition(": ")
        parts.append(f"has no effect{when.removeprefix('none')}: {why}")
    return f"{row.flag} {' and '.join(parts)}"
