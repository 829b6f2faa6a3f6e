"""Compose files, as far as the checks of containers read them."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from bident.doctor.check import Finding, Patient
from bident.doctor.machine.surroundings import MachineCheck
from bident.errors import ServeError, invalid_arg

_NAMES = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")
_LARGEST = 1 << 19
"""Bytes; the largest compose files of real projects have a tenth of it."""
_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://(?:[^\s/@'\"]*@)?([A-Za-z0-9_.-]+)(?::(\d+))?")
DEFAULT_NETWORK = "default"


@dataclass(frozen=True)
class Target:
    """A host, and the port where one is said, that a service is told to talk to."""

    host: str
    port: int | None
    where: str
    """The setting that says so."""


@dataclass(frozen=True)
class Service:
    """One service."""

    name: str
    names: frozenset[str]
    """What others on its networks may call it."""
    networks: frozenset[str]
    is_on_host: bool
    """Whether it has the host's network and none of its own."""
    image: str
    settings: dict[str, str]
    """Its environment and its command line: whatever may hold an address."""
    published: tuple[str, ...]
    extra_hosts: frozenset[str]
    has_shared_memory: bool

    def targets(self) -> Iterator[Target]:
        """Where its settings send it."""
        for where, text in self.settings.items():
            for found in _URL.finditer(text):
                yield Target(found[1].lower(), int(found[2]) if found[2] else None, where)

    def own_ports(self) -> frozenset[int]:
        """Ports that it listens on, as far as they are published."""
        ends = (entry.partition("/")[0].rpartition(":")[2] for entry in self.published)
        return frozenset(int(end) for end in ends if end.isdecimal())


@dataclass(frozen=True)
class Compose:
    """One file."""

    path: Path
    services: dict[str, Service] = field(default_factory=dict)
    external: frozenset[str] = frozenset()
    """Networks that other projects made."""


def compose_file(patient: Patient) -> Path | None:
    """The compose file that the command was given, or that lies in the folder it was given; None without one."""
    if patient.model and patient.model.is_file():
        return patient.model if patient.model.suffix in (".yaml", ".yml") else None
    folder = patient.repository if patient.model is None else None
    return next((path for name in _NAMES if folder and (path := folder / name).is_file()), None)


def read_compose(path: Path) -> Compose | None:
    """What ``path`` says; None where it is another YAML file. Raises INVALID_ARG that says why it cannot be read."""
    try:
        found = path.stat()
    except OSError as error:
        raise invalid_arg(f"{path} cannot be read: {error.strerror}") from None
    read = _read(path, (found.st_mtime_ns, found.st_size))
    if isinstance(read, ServeError):
        raise read
    return read


@lru_cache(maxsize=4)
def _read(path: Path, mark: tuple[int, int]) -> Compose | ServeError | None:
    """Once for all checks; ``mark``, when it was written and its size in bytes, tells a changed file."""
    if mark[1] > _LARGEST:
        return invalid_arg(f"{path} has {mark[1]} bytes, and is no configuration")
    try:
        tree = _tree(path)
    except ServeError as error:
        return error
    services = tree.get("services") if isinstance(tree, dict) else None
    if not isinstance(services, dict):
        return None
    networks = _mapping(tree.get("networks"))
    return Compose(
        path,
        {_scalar(name): _service(_scalar(name), _mapping(entry)) for name, entry in services.items()},
        frozenset(_scalar(name) for name, entry in networks.items() if _mapping(entry).get("external")),
    )


def _tree(path: Path) -> Any:
    import yaml

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise invalid_arg(f"{path} is not YAML: {' '.join(str(error).split())}") from None


def _service(name: str, entry: dict[str, Any]) -> Service:
    mode = _scalar(entry.get("network_mode"))
    networks = entry.get("networks")
    joined = (
        {_scalar(each) for each in networks} if isinstance(networks, dict | list) and networks else {DEFAULT_NETWORK}
    )
    details = _mapping(networks)
    aliases = {_scalar(alias) for each in details.values() for alias in _list(_mapping(each).get("aliases"))}
    named = {_scalar(entry.get(key)) for key in ("container_name", "hostname")} - {""}
    return Service(
        name,
        frozenset({name, *named, *aliases}),
        frozenset() if mode else frozenset(joined),
        mode == "host",
        _scalar(entry.get("image")),
        _settings(entry),
        tuple(_published(entry)),
        frozenset(_hosts(entry.get("extra_hosts"))),
        bool(entry.get("shm_size")) or entry.get("ipc") == "host",
    )


def _settings(entry: dict[str, Any]) -> dict[str, str]:
    environment = entry.get("environment")
    found = {_scalar(key): _scalar(value) for key, value in _mapping(environment).items()}
    for line in _list(environment):
        key, equals, value = _scalar(line).partition("=")
        if equals:
            found[key] = value
    for key in ("command", "entrypoint"):
        if words := " ".join(map(_scalar, _list(entry.get(key)))) or _scalar(entry.get(key)):
            found[key] = words
    return found


def _published(entry: dict[str, Any]) -> Iterator[str]:
    """Its ports in the short form, ``[ADDRESS:]PORT:PORT``."""
    for port in _list(entry.get("ports")):
        parts = [port.get(key) for key in ("host_ip", "published", "target")] if isinstance(port, dict) else [port]
        if text := ":".join(filter(None, map(_scalar, parts))):
            yield text


def _hosts(value: Any) -> Iterator[str]:
    for line in [*_mapping(value), *_list(value)]:
        yield re.split("[:=]", _scalar(line))[0]


def _scalar(value: Any) -> str:
    """A text or a number as text. Not what holds others: by its aliases a small file can stand for endless lists."""
    return str(value) if isinstance(value, str | int | float) else ""


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


class ComposeCheck(MachineCheck):
    """A check of a compose file that was given as PATH."""

    reads_path = True

    def examine(self, patient: Patient) -> Iterator[Finding]:
        path = compose_file(patient)
        try:
            compose = read_compose(path) if path else None
        except ServeError:
            return  # one check tells of it
        if compose is not None:
            yield from self._findings(compose)

    @abstractmethod
    def _findings(self, compose: Compose) -> Iterator[Finding]:
        """Look at the whole file."""


class ComposeFile(MachineCheck):
    """What keeps the other checks of compose files from looking."""

    name = "compose-file"
    title = "A compose file cannot be read"
    reads_path = True

    def examine(self, patient: Patient) -> Iterator[Finding]:
        path = compose_file(patient)
        try:
            if path:
                read_compose(path)
        except ServeError as error:
            yield self._broken(
                path, error.message, "an indent, a tab, or an encoding that YAML has not", "mend the line"
            )
