"""What a real Triton is told: the flags it knows, out of the settings that were given here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bident.errors import SettingsError
from bident.settings import TABLE, Setting, TensorSettings
from bident.ship.triton.home import has_gpu

_FLAG = re.compile(r"--[a-z][a-z0-9-]+")
_SETTLED = frozenset({"engine", "config_file", "insecure", "model_cache_directory", "model_repository", "log_file"})
"""Heeded here; of its log, because what it says has to be heard."""
_DOORS = frozenset(f"{door}_{what}" for door in ("http", "grpc", "metrics") for what in ("address", "port"))
_ALLOWED = ("allow_http", "allow_grpc", "allow_metrics")
PROTECTION = frozenset({"api_key_file", "http_use_ssl", "http_use_ssl_mutual"})
"""Who relies on these must not be served without them."""
_FOLDERS = {"cache_directory": "caches", "repoagent_directory": "repoagents"}
"""Settings, and where in its installation a Triton has what they name."""
_PLUG_INS = frozenset({"backend_directory", *_FOLDERS})


@dataclass(frozen=True)
class Told:
    """The flags of one Triton, and what of the settings it cannot be told, in words for the log."""

    flags: list[str]
    notices: list[str]


def known_flags(usage: str) -> frozenset[str]:
    """The flags that ``tritonserver --help`` speaks of."""
    return frozenset(_FLAG.findall(usage))


def tell(settings: TensorSettings, given: Mapping[str, Sequence[str]], known: frozenset[str], home: Path) -> Told:
    """The flags for a Triton that knows ``known``; repositories and backends are for others to add.

    ``given`` are the texts by setting's name, as they were written. Raises SettingsError where this
    Triton would serve without the protection that was asked for.
    """
    rows = [row for row in TABLE if row.name in given and row.name not in _SETTLED | _DOORS | set(_ALLOWED)]
    unknown = [row for row in rows if row.flag not in known or row.name in _PLUG_INS]
    if refused := [row.flag for row in unknown if row.name in PROTECTION and getattr(settings, row.name)]:
        raise SettingsError(
            f"{' and '.join(refused)} with --engine=triton: this Triton has no such flag and would answer everybody "
            "in the clear; leave it on loopback behind a proxy that does it, or use --http-restricted-api and "
            "--grpc-use-ssl, which it has"
        )
    flags = [*_doors(settings), *(flag for row in rows if row not in unknown for flag in row.written(given[row.name]))]
    for name, folder in _FOLDERS.items():
        if (home / folder).is_dir():
            flags.append(f"--{name.replace('_', '-')}={home / folder}")
    if not has_gpu():
        flags += _without_gpu(given)
    return Told(flags, [f"{row.flag} has no effect with --engine=triton: {_why(row)}" for row in unknown])


def _doors(settings: TensorSettings) -> Iterator[str]:
    """Always told: Triton's own addresses are every network's."""
    for door, allowed in zip(("http", "grpc", "metrics"), _ALLOWED, strict=True):
        opens = getattr(settings, allowed)
        yield f"--allow-{door}={str(opens).lower()}"
        if opens:
            yield f"--{door}-address={getattr(settings, f'{door}_address')}"
            yield f"--{door}-port={getattr(settings, f'{door}_port')}"


def _without_gpu(given: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Spares the warnings of a Triton that looks for a GPU."""
    if "allow_gpu_metrics" not in given:
        yield "--allow-gpu-metrics=false"
    if "pinned_memory_pool_byte_size" not in given:
        yield "--pinned-memory-pool-byte-size=0"


def _why(row: Setting) -> str:
    return "its own folders are taken" if row.name in _PLUG_INS else "this Triton has no such flag"
