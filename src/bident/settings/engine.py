"""The settings of what happens to a request behind the doors: tracing, caching, limits, backends, memory."""

# ruff: noqa: RUF009 - setting() returns a dataclass field, not a default value

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bident.settings.setting import CPU_ONLY, setting
from bident.settings.values import (
    BOOLEAN,
    COUNT,
    DEVICE_BYTES,
    DEVICE_FRACTIONS,
    NAMED_OPTIONS,
    OPTIONS,
    REAL,
    RESOURCES,
    TEXT,
    TRACE_LEVELS,
    TRACE_OPTIONS,
    Named,
    Pairs,
    RateLimitResource,
    choice,
    whole,
)

_PLUG_INS = "none: plug-ins are Python packages, found by their entry points"


@dataclass(frozen=True)
class Tracing:
    """Which requests leave a trace."""

    title: ClassVar[str] = "Tracing"

    trace_config: tuple[Named, ...] = setting(
        TRACE_OPTIONS,
        (),
        "level, rate, count and mode=triton or mode=opentelemetry; for the one triton,file=<path> and "
        "triton,log-frequency=<n>, for the other opentelemetry,url=<url>, opentelemetry,resource=<attribute>=<value>, "
        "opentelemetry,bsp_max_queue_size=<n>, bsp_schedule_delay=<ms> and bsp_max_export_batch_size=<n>.",
    )
    trace_file: str = setting(TEXT, "", "Where traces go.", replacement="--trace-config triton,file=<path>")
    trace_level: tuple[str, ...] = setting(
        TRACE_LEVELS,
        (),
        "OFF, TIMESTAMPS or TENSORS.",
        replacement="--trace-config level=<level>",
    )
    trace_rate: int = setting(whole(0), 1000, "One request in so many.", replacement="--trace-config rate=<n>")
    trace_count: int = setting(
        whole(-1), -1, "How many in all; -1 is no limit.", replacement="--trace-config count=<n>"
    )
    trace_log_frequency: int = setting(
        COUNT,
        0,
        "Traces to a file; 0 is all in one.",
        replacement="--trace-config triton,log-frequency=<n>",
    )


@dataclass(frozen=True)
class Cache:
    """Answers kept for the same question."""

    title: ClassVar[str] = "Response cache"

    cache_config: Pairs = setting(
        NAMED_OPTIONS, {}, "A cache and its size: local,size=1048576 keeps that many bytes of answers."
    )
    cache_directory: str = setting(TEXT, "", "Where caches are looked for.", effect=_PLUG_INS)
    response_cache_byte_size: int = setting(
        COUNT, 0, "Size of the local cache.", replacement="--cache-config local,size=<bytes>"
    )


@dataclass(frozen=True)
class RateLimit:
    """Which instance may run next."""

    title: ClassVar[str] = "Rate limit"

    rate_limit: str = setting(
        choice("off", "execution_count"),
        "off",
        "execution_count: an instance runs when the resources it declares are free, the least used first.",
    )
    rate_limit_resource: tuple[RateLimitResource, ...] = setting(
        RESOURCES, (), "How many of a resource there are; without it, the most any instance asks for."
    )


@dataclass(frozen=True)
class BackendSettings:
    """What backends are told."""

    title: ClassVar[str] = "Backends"

    backend_config: Pairs = setting(
        OPTIONS,
        {},
        "A setting for one backend (onnxruntime,intra_op_thread_count=2) or for all (default-max-batch-size=8).",
    )
    backend_directory: str = setting(TEXT, "", "Where backends are looked for.", effect=_PLUG_INS)
    repoagent_directory: str = setting(TEXT, "", "Where repository agents are looked for.", effect=_PLUG_INS)


@dataclass(frozen=True)
class SharedMemory:
    """Tensors that clients share instead of sending."""

    title: ClassVar[str] = "Shared memory"

    allow_client_shm: bool = setting(
        BOOLEAN,
        False,
        "Let clients register shared memory regions.",
    )


@dataclass(frozen=True)
class Devices:
    """GPUs and pinned memory, accepted so that command lines carry over."""

    title: ClassVar[str] = "CUDA and host memory"

    pinned_memory_pool_byte_size: int = setting(COUNT, 256 * 1024 * 1024, "Pinned memory.", effect=CPU_ONLY)
    cuda_memory_pool_byte_size: dict[int, int] = setting(DEVICE_BYTES, {}, "Memory pool of a GPU.", effect=CPU_ONLY)
    cuda_virtual_address_size: dict[int, int] = setting(
        DEVICE_BYTES, {}, "Address space for growable state on a GPU.", effect=CPU_ONLY
    )
    min_supported_compute_capability: float = setting(REAL, 6.0, "Oldest GPU that is used.", effect=CPU_ONLY)
    enable_peer_access: bool = setting(BOOLEAN, True, "GPUs read each other's memory.", effect=CPU_ONLY)
    model_load_gpu_limit: dict[int, float] = setting(
        DEVICE_FRACTIONS, {}, "Share of a GPU's memory that models may fill.", effect=CPU_ONLY
    )
    buffer_manager_thread_count: int = setting(
        COUNT, 0, "Threads that copy tensors.", effect="none: tensors are copied once, by the thread that merges them"
    )
    host_policy: Pairs = setting(
        NAMED_OPTIONS, {}, "numa-node or cpu-cores of a policy.", effect="none yet: instances are not pinned to cores"
    )
