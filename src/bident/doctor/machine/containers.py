"""Containers that cannot reach each other, and containers that everybody can reach."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

from bident.connect.dify.door import HOST_MACHINE as _HOST
from bident.doctor.check import Finding
from bident.doctor.machine.compose import Compose, ComposeCheck, Service, Target
from bident.settings.security import is_loopback

_SERVING_PORTS = frozenset({8000, 8001, 8002, 11434})


class ComposeNetworks(ComposeCheck):
    """Names of containers are known on shared networks alone."""

    name = "compose-networks"
    title = "A service names a container that is on none of its networks"

    def _findings(self, compose: Compose) -> Iterator[Finding]:
        for service in compose.services.values():
            for target in dict.fromkeys(service.targets()):
                others = [other for other in compose.services.values() if target.host in other.names]
                if others and service not in others:
                    yield from self._known(compose, service, target, others[0])
                elif not others and _is_bare(target.host) and not service.extra_hosts & {target.host}:
                    yield from self._unknown(compose, service, target)

    def _known(self, compose: Compose, service: Service, target: Target, other: Service) -> Iterator[Finding]:
        where = f"{compose.path}: {service.name}"
        if service.is_on_host:
            yield self._broken(
                where,
                f"{target.where} names {target.host}, and network_mode is host",
                "the host does not know the names of containers",
                "publish that service's port and write 127.0.0.1, or drop network_mode",
            )
        elif not service.networks & other.networks:
            yield self._broken(
                where,
                f"{target.where} names {target.host}, which is on {_listed(other)}; {service.name} is on "
                f"{_listed(service)}",
                "containers know each other's names, and reach each other, on a shared network alone",
                f"add one of {_listed(other)} to the networks of {service.name}, or the other way round",
            )

    def _unknown(self, compose: Compose, service: Service, target: Target) -> Iterator[Finding]:
        if not service.networks & compose.external:
            yield self._risk(
                f"{compose.path}: {service.name}",
                f"{target.where} names {target.host}, which is no service of this file, and {service.name} is on no "
                "external network",
                "each compose project has a network of its own: containers of another one are not known here",
                f"join that project's network: under networks, 'external: true' and 'name: PROJECT_default' (docker "
                f"inspect {target.host} shows it)",
            )


class LocalhostInContainer(ComposeCheck):
    """In a container, localhost is the container."""

    name = "localhost-in-container"
    title = "A service in a container looks for another program on localhost"

    def _findings(self, compose: Compose) -> Iterator[Finding]:
        for service in compose.services.values():
            for target in dict.fromkeys(service.targets()):
                if service.is_on_host or target.port in service.own_ports():
                    continue
                where = f"{compose.path}: {service.name}"
                if is_loopback(target.host) and target.port:
                    yield self._broken(
                        where,
                        f"{target.where} sends it to {target.host}:{target.port}",
                        "a container has a loopback of its own, and nothing else listens there",
                        f"a program on this machine is {_HOST}:{target.port} (it must listen on more than loopback); "
                        "another container goes by its service's name",
                    )
                elif target.host == _HOST and _HOST not in service.extra_hosts:
                    yield self._risk(
                        where,
                        f"{target.where} sends it to {_HOST}, and extra_hosts does not name that",
                        "Docker Desktop knows this name by itself, Docker on Linux does not",
                        f'add to {service.name}: extra_hosts: ["{_HOST}:host-gateway"]',
                    )


class ComposePorts(ComposeCheck):
    """Docker's rules come before those of the firewall."""

    name = "compose-ports"
    title = "A container's port is published to the whole network"

    def _findings(self, compose: Compose) -> Iterator[Finding]:
        for service in compose.services.values():
            for entry in service.published:
                parts = entry.partition("/")[0].split(":")
                if len(parts) == 2 and _serving(parts[1]):
                    yield self._risk(
                        f"{compose.path}: {service.name}",
                        f'ports has "{entry}"',
                        "without an address a port is published on all of the machine's; Docker goes past ufw and "
                        "firewalld, and these doors ask nobody for a key unless told to",
                        f'write "127.0.0.1:{entry}"; containers reach each other without a published port',
                    )


class ComposeSharedMemory(ComposeCheck):
    """A container has 64 MiB of /dev/shm unless it is told otherwise."""

    name = "compose-shared-memory"
    title = "A Triton in a container has little shared memory"

    def _findings(self, compose: Compose) -> Iterator[Finding]:
        for service in compose.services.values():
            if (
                "tritonserver" in f"{service.image} {service.settings.get('command', '')}"
                and not service.has_shared_memory
            ):
                yield self._risk(
                    f"{compose.path}: {service.name}",
                    "it runs a tritonserver, and has no shm_size",
                    "Docker gives a container 64 MiB of /dev/shm; Triton passes tensors to Python models through it",
                    'add shm_size: "1gb"',
                )


class ContainerEngine(ComposeCheck):
    """The file is there, what would run it is not."""

    name = "container-engine"
    title = "There is a compose file, and nothing to run it with"

    def _findings(self, compose: Compose) -> Iterator[Finding]:
        path = self._here.environ.get("PATH", "")
        if not any(shutil.which(program, path=path) for program in ("docker", "podman", "nerdctl")):
            yield self._note(
                compose.path,
                "neither docker nor podman nor nerdctl is on the PATH",
                "no container engine is installed, or its folder is not on the PATH",
                "install one; without containers the same models are served by 'bident up'",
            )


def _serving(ports: str) -> bool:
    """Whether ``8000`` or ``8000-8002`` are ports of these servers."""
    first, _, last = ports.partition("-")
    if not first.isdecimal() or not (last or first).isdecimal():
        return False
    return any(int(first) <= port <= int(last or first) for port in _SERVING_PORTS)


def _listed(service: Service) -> str:
    return "the network of the host" if service.is_on_host else ", ".join(sorted(service.networks)) or "no network"


def _is_bare(host: str) -> bool:
    """Whether it can be a container's name alone: no domain, no address, no variable."""
    return re.fullmatch(r"[a-z][a-z0-9_-]*", host) is not None and host != "localhost"
