"""Ports that servers want and others have."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from bident.client import Credentials, TextClient
from bident.doctor.check import Finding, Patient
from bident.doctor.machine.surroundings import MachineCheck
from bident.local import ports
from bident.local.process import children
from bident.local.record import STATE_DIR, Record
from bident.settings.text import DEFAULT_PORT

_STEP = 100
"""Between a port that is taken and the first one that is offered instead, as people choose it: 8000, 8100."""
_HIGHEST_PORT = 65535
_SECONDS = 2.0
_LONGEST_COMMAND = 120


class Door(NamedTuple):
    """A port that a server would listen on."""

    name: str
    address: str
    port: int
    variable: str
    """The environment variable that chooses another."""


class _DoorsCheck(MachineCheck):
    def _tensor_doors(self) -> list[Door]:
        settings, _ = self._here.settings()
        doors = (
            (settings.allow_http, Door("HTTP", settings.http_address, settings.http_port, "BIDENT_HTTP_PORT")),
            (settings.allow_grpc, Door("gRPC", settings.grpc_address, settings.grpc_port, "BIDENT_GRPC_PORT")),
            (
                settings.allow_metrics,
                Door("metrics", settings.metrics_address, settings.metrics_port, "BIDENT_METRICS_PORT"),
            ),
        )
        return [door for opens, door in doors if opens and door.port]

    def _text_door(self) -> Door:
        _, settings = self._here.settings()
        return Door("text", settings.host.host, settings.port, "BIDENT_TEXT_PORT")

    def _is_ollamas(self, door: Door) -> bool:
        if not door.port or not ports.taken(door.address, door.port):
            return False
        return TextClient(f"http://{ports.local(door.address)}:{door.port}", _SECONDS, Credentials()).is_real_ollama()


class PortsTaken(_DoorsCheck):
    """A server that starts on such a port refuses, and says the same."""

    name = "ports"
    title = "A port that the servers want is taken"

    def examine(self, patient: Patient) -> Iterator[Finding]:
        own = self._own_processes()
        text = self._text_door()
        stands_by = text.port == DEFAULT_PORT and self._is_ollamas(text)
        for door in (*self._tensor_doors(), *(() if stands_by or not text.port else (text,))):
            holder = ports.holder(door.port)
            if ports.taken(door.address, door.port) and not (holder and holder.pid in own):
                where, cause = f"port {door.port} ({door.name})", "two servers cannot listen on one port"
                yield self._broken(where, _who(holder), cause, self._cure(door, holder))

    def _own_processes(self) -> set[int]:
        """Those of the server that ``bident up`` started in this folder: its ports are its own."""
        record = Record.read(self._here.directory / STATE_DIR)
        if record is None or not record.running():
            return set()
        first = children(record.pid)
        return {record.pid, *first, *(pid for child in first for pid in children(child))}

    def _cure(self, door: Door, holder: ports.Holder | None) -> str:
        free = _free_port(door)
        elsewhere = f"start on another: {door.variable}={free} bident up" if free else f"set {door.variable}"
        if holder is None:
            return elsewhere
        if "bident" in " ".join(holder.command):
            return (
                f"use that server, or end it with 'bident down' in its folder ({_folder(holder.pid)}), or {elsewhere}"
            )
        return f"end it (kill {holder.pid}), or {elsewhere}"


class RealOllama(_DoorsCheck):
    """No fault: whoever asks text models there is answered by Ollama, and should know."""

    name = "real-ollama"
    title = "A real Ollama has the text server's port"

    def examine(self, patient: Patient) -> Iterator[Finding]:
        door = self._text_door()
        if not self._is_ollamas(door):
            return
        holder = ports.holder(door.port)
        if door.port == DEFAULT_PORT:
            yield self._note(
                f"port {door.port}",
                f"an Ollama answers there{f': {holder}' if holder else ''}",
                "Bident uses an Ollama that it finds in its place: text models are that one's",
                "nothing, if that is what you want; for the engine inside, stop Ollama or set BIDENT_TEXT_PORT",
            )
        if holder and any(ports.is_everywhere(address) for address in holder.addresses):
            yield self._risk(
                f"port {door.port}",
                f"the Ollama there ({holder}) listens on every network of this machine",
                "OLLAMA_HOST was set to 0.0.0.0 for it, and Ollama asks nobody for a key",
                "start it with OLLAMA_HOST=127.0.0.1, or keep the port behind a firewall",
            )


def _who(holder: ports.Holder | None) -> str:
    if holder is None:
        return "it is taken; the system does not tell by whom (root may ask: ss -tlnp)"
    command = " ".join(holder.command)
    shown = command if len(command) <= _LONGEST_COMMAND else f"{command[:_LONGEST_COMMAND]} ..."
    return f"{holder} listens there: {shown}" if shown else f"{holder} listens there"


def _free_port(door: Door) -> int:
    """The nearest one that people would choose; 0 where there is none."""
    tried = range(door.port + _STEP, min(door.port + 10 * _STEP, _HIGHEST_PORT + 1), _STEP)
    return next((port for port in tried if not ports.taken(door.address, port)), 0)


def _folder(pid: int) -> str:
    import psutil

    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).cwd()
    return "unknown"
