"""A Docker Compose file that serves in containers what the settings here serve without.

The tensor server is Bident's or NVIDIA's, the text server is Bident's. Both are published where the settings listen,
and join the networks of other projects, as LiteLLM's and Dify's, so that those reach them by name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from bident import __version__
from bident.errors import SettingsError
from bident.local.ports import is_everywhere, local
from bident.settings import TABLE, TEXT_TABLE, Setting, TensorSettings, TextSettings
from bident.settings.values import Api
from bident.ship.triton.flags import PROTECTION
from bident.yaml import to_yaml

Tree: TypeAlias = dict[str, Any]
Given: TypeAlias = Mapping[str, Sequence[str]]

FILE_NAME = "docker-compose.yml"
BIDENT_IMAGE = f"bident:{__version__}"
TRITON_IMAGE = "nvcr.io/nvidia/tritonserver:25.05-py3"
NETWORKS = ("litellm_default", "docker_default")
"""What LiteLLM's and Dify's own compose files call their networks."""
_BIDENT_ONLY = frozenset(
    {
        "workers",
        "triton_compat",
        "model_cache_directory",
        "http_max_header_size",
        "http_header_timeout_secs",
        "http_idle_timeout_secs",
        "http_max_connections",
        "http_max_input_size",
        "http_server_cert",
        "http_server_key",
        "http_root_cert",
        "allow_client_shm",
        *PROTECTION,
    }
)
"""What the release in :data:`TRITON_IMAGE` has no flag for."""
_SAID_HERE = frozenset(
    {
        *("engine", "config_file", "insecure", "model_repository", "model_cache_directory", "log_file"),
        *(f"{door}_{what}" for door in ("http", "grpc", "metrics") for what in ("address", "port")),
        *("host", "port", "models", "library"),
    }
)
"""Settings that a container has otherwise, and says itself."""
_FILES = frozenset(
    {
        "api_key_file",
        *(f"{door}_{what}" for door in ("http", "grpc") for what in ("server_cert", "server_key", "root_cert")),
    }
    | {"server_cert", "server_key", "root_cert"}
)
_PORTS = {"http": 8000, "grpc": 8001, "metrics": 8002}
_TEXT_PORT = 11434
_MODELS, _CACHE, _TEXT_MODELS, _SECRETS = "/models", "/cache", "/text-models", "/run/bident"


@dataclass(frozen=True)
class Wish:
    """What is wanted of the file. Empty ``networks``: none but its own. ``image`` empty: the engine's usual one."""

    engine: str = "bident"
    image: str = ""
    text: bool = True
    memory: str = "10g"
    shared_memory: str = "2gb"
    networks: tuple[str, ...] = NETWORKS


@dataclass(frozen=True)
class Site:
    """The settings of both servers, and what they were given as, by setting's name."""

    tensor: TensorSettings
    text: TextSettings
    tensor_given: Given
    text_given: Given
    folder: Path = Path()
    """Where the file is to lie: paths in it are relative to that."""

    def path(self, path: Path) -> str:
        """A path of this machine as Compose wants it: without a slash or a dot in front it would be a volume's name."""
        if path.is_absolute():
            return path.as_posix()
        text = Path(os.path.relpath(path, self.folder)).as_posix()
        return text if text.startswith("..") else f"./{text}"

    def mount(self, path: Path, inside: str) -> str | Tree:
        """A volume: ``path`` to be read at ``inside``. The short form has no place for a path with a colon in it."""
        outside = self.path(path)
        if ":" in outside:
            return {"type": "bind", "source": outside, "target": inside, "read_only": True}
        return f"{outside}:{inside}:ro"


def compose(site: Site, wish: Wish) -> str:
    """The file's text. Raises SettingsError where the engine lacks a protection that the settings ask for."""
    services: Tree = {"tensor": _tensor(site, wish)}
    volumes: Tree = {} if wish.engine == "triton" else {"cache": {}}
    if wish.text:
        services["text"] = _text(site, wish)
        volumes["text-models"] = {}
    tree: Tree = {"name": "bident", "services": services}
    if wish.networks:
        tree["networks"] = {_key(name): {"external": True, "name": name} for name in wish.networks}
    if volumes:
        tree["volumes"] = volumes
    return _head(wish) + to_yaml(_escaped(tree))


def _head(wish: Wish) -> str:
    lines = [
        "Written by 'bident export compose' from the settings of the folder it was called in; write it again after",
        "they change. Paths are relative to this file.",
        "Whoever is on these networks may use the servers, unless an --api-key-file is among the settings.",
        *(f"{name}: the network of another project, which must be there: docker network ls" for name in wish.networks),
    ]
    return "".join(f"# {line}\n" for line in lines)


def _tensor(site: Site, wish: Wish) -> Tree:
    settings = site.tensor
    is_triton = wish.engine == "triton"
    rows = _rows(TABLE, site.tensor_given)
    if is_triton and (asked := [row.flag for row in rows if row.name in PROTECTION and getattr(settings, row.name)]):
        raise SettingsError(
            f"{', '.join(asked)}: NVIDIA's server has no such flag and would answer everybody; leave it out and put a "
            "proxy in front, or export with --engine bident"
        )
    rows = [row for row in rows if not is_triton or row.name not in _BIDENT_ONLY]
    roots = {f"{_MODELS}{number or ''}": path for number, path in enumerate(settings.model_repository)}
    command = ["tritonserver"] if is_triton else ["serve", "tensor"]
    command += [f"--model-repository={root}" for root in roots]
    command += _addresses(settings, is_triton)
    command += [flag for row in rows for flag in _flags(row, site.tensor_given)]
    volumes = [site.mount(path, root) for root, path in roots.items()]
    volumes += [] if is_triton else [f"cache:{_CACHE}"]
    volumes += [_mount(row, site, site.tensor_given) for row in rows if row.name in _FILES]
    return {
        "image": wish.image or (TRITON_IMAGE if is_triton else BIDENT_IMAGE),
        "command": command,
        "volumes": volumes,
        "ports": list(_published(settings)),
        "shm_size": wish.shared_memory,
        **_around(wish, _probe_of(settings)),
    }


def _text(site: Site, wish: Wish) -> Tree:
    settings = site.text
    rows = _rows(TEXT_TABLE, site.text_given)
    command = ["serve", "text", "--host=0.0.0.0", f"--port={_TEXT_PORT}", f"--models={_TEXT_MODELS}"]
    command += [] if settings.api_key_file else ["--insecure"]
    command += [flag for row in rows for flag in _flags(row, site.text_given)]
    libraries = [(f"/library{number or ''}", path) for number, path in enumerate(settings.library)]
    command += [f"--library={folder}" for folder, _ in libraries]
    probe = _connects(_TEXT_PORT) if settings.is_encrypted else _answers(f"{_TEXT_PORT}/")
    return {
        "image": wish.image if wish.image and wish.engine == "bident" else BIDENT_IMAGE,
        "command": command,
        "volumes": [
            f"text-models:{_TEXT_MODELS}",
            *(site.mount(path, folder) for folder, path in libraries),
            *(_mount(row, site, site.text_given) for row in rows if row.name in _FILES),
        ],
        "ports": [_port(settings.host.host, settings.port, _TEXT_PORT)],
        **_around(wish, probe),
    }


def _around(wish: Wish, probe: str) -> Tree:
    """What both services have alike: limits, health and networks. ``probe``: a line of Python that fails if need be."""
    tree: Tree = {
        "deploy": {"resources": {"limits": {"memory": wish.memory}}},
        "restart": "unless-stopped",
        "stop_grace_period": "40s",  # longer than the servers' own --exit-timeout-secs
        # Both images have Python, and not both have curl.
        "healthcheck": {
            "test": ["CMD", "python3", "-c", probe],
            "interval": "10s",
            "timeout": "5s",
            "retries": 3,
            "start_period": "2m",
        },
    }
    if wish.networks:
        tree["networks"] = ["default", *map(_key, wish.networks)]
    return tree


def _probe_of(settings: TensorSettings) -> str:
    """Whether the models are ready, where anybody may ask that in the clear; else whether a door is open."""
    closed = {api for group in settings.http_restricted_api for api in group.apis}
    if (
        settings.allow_http
        and not settings.http_use_ssl
        and not settings.http_use_ssl_mutual
        and Api.HEALTH not in closed
    ):
        return _answers(f"{_PORTS['http']}/v2/health/ready")
    return _connects(next(iter(_open_doors(settings).values())))


def _answers(place: str) -> str:
    return f"import urllib.request as r; r.urlopen('http://127.0.0.1:{place}', timeout=4)"


def _connects(port: int) -> str:
    return f"import socket; socket.create_connection(('127.0.0.1', {port}), timeout=4)"


def _open_doors(settings: TensorSettings) -> dict[str, int]:
    """The doors that there are, and the container's port of each."""
    return {door: port for door, port in _PORTS.items() if getattr(settings, f"allow_{door}")}


def _addresses(settings: TensorSettings, is_triton: bool) -> Iterator[str]:
    """Every network of the container, which is its own; who reaches it from outside is up to the ports."""
    for door, port in _open_doors(settings).items():
        yield f"--{door}-address=0.0.0.0"
        yield f"--{door}-port={port}"
    if not is_triton:
        yield f"--model-cache-directory={_CACHE}"
        if not settings.api_key_file:
            yield "--insecure"


def _published(settings: TensorSettings) -> Iterator[str]:
    for door, port in _open_doors(settings).items():
        yield _port(getattr(settings, f"{door}_address"), getattr(settings, f"{door}_port"), port)


def _port(address: str, outside: int | None, inside: int) -> str:
    """Where a port is published: on the address that the server has without a container."""
    ports = f"{outside or inside}:{inside}"
    if is_everywhere(address):
        return ports
    return f"{local('127.0.0.1' if address == 'localhost' else address)}:{ports}"


def _rows(table: Sequence[Setting], given: Given) -> list[Setting]:
    """The settings that were given and that a container is told too."""
    return [row for row in table if row.name in given and row.name not in _SAID_HERE]


def _flags(row: Setting, given: Given) -> Iterator[str]:
    if row.name in _FILES:
        yield f"{row.flag}={_inside(row, given)}"
    else:
        yield from row.written(given[row.name])


def _mount(row: Setting, site: Site, given: Given) -> str | Tree:
    return site.mount(Path(given[row.name][-1]), _inside(row, given))


def _inside(row: Setting, given: Given) -> str:
    """Where a container finds a file: by the setting's name, since two files may have the same."""
    return f"{_SECRETS}/{row.key}{Path(given[row.name][-1]).suffix}"


def _key(network: str) -> str:
    """What a network is called in this file."""
    return {"litellm_default": "litellm_net", "docker_default": "dify_net"}.get(network, network)


def _escaped(value: Any) -> Any:
    """``value`` with $ doubled in its texts: Compose puts variables where there is one."""
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    return value.replace("$", "$$") if isinstance(value, str) else value
