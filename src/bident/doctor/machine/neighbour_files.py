"""Configuration of neighbours that name this machine by a name that only this machine knows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bident.connect.dify.door import HOST_MACHINE
from bident.doctor.check import Finding, Patient
from bident.doctor.machine.compose import compose_file, read_compose
from bident.doctor.machine.surroundings import MachineCheck
from bident.errors import ServeError

_LARGEST = 1 << 20
_ADDRESS = re.compile(r"\b(?:https?|grpc)://(localhost|127\.0\.0\.1|\[::1\]):(8000|8001|8002|11434)\b")
_ENDINGS = (".yaml", ".yml", ".env")


class NeighbourLocalhost(MachineCheck):
    """A gateway or an app that runs in a container takes localhost for the container."""

    name = "neighbour-localhost"
    title = "A neighbour's configuration names a server here as localhost"
    reads_path = True

    def examine(self, patient: Patient) -> Iterator[Finding]:
        path = patient.model
        if path is None or not path.is_file() or not path.name.endswith(_ENDINGS):
            return
        try:
            if compose_file(patient) and read_compose(path) is not None:
                return  # of a compose file it is known who is in a container
            text = path.read_text(encoding="utf-8") if path.stat().st_size <= _LARGEST else ""
        except (OSError, ValueError, ServeError):
            return
        for number, line in enumerate(text.splitlines(), 1):
            if not line.lstrip().startswith("#") and (found := _ADDRESS.search(line)):
                yield self._note(
                    f"{path}:{number}",
                    f"it names {found[0]}",
                    "that is right where the program runs on this machine itself; in a container it is the container",
                    f"for a container write http://{HOST_MACHINE}:{found[2]}; the server must then listen on "
                    "more than loopback",
                )
