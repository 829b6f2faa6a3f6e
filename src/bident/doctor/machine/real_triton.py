"""A real Triton that is installed here and cannot be run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from bident.doctor.check import Finding, Patient
from bident.doctor.machine.surroundings import MachineCheck
from bident.errors import ServeError
from bident.ship.triton.home import VARIABLE, Home, find_home
from bident.ship.triton.linking import output_of


class RealTriton(MachineCheck):
    """What ``bident serve tensor --engine=triton`` would say, without a start."""

    name = "real-triton"
    title = "The real Triton on this machine cannot be run"

    def examine(self, patient: Patient) -> Iterator[Finding]:
        if self._here.platform != "linux":
            return
        try:
            home = find_home(self._here.environ)
        except ServeError as error:
            if self._here.environ.get(VARIABLE):
                yield self._broken(
                    f"{VARIABLE}={self._here.environ[VARIABLE]}",
                    error.message,
                    "the variable names another folder than the one the archive was unpacked into",
                    f"export {VARIABLE}=FOLDER, whose bin holds tritonserver, or unset it",
                )
            return
        environment = home.environment(self._here.environ)
        yield from self._run(home, home.binary, environment, "--help")
        try:
            stub = home.stub()
        except ServeError as error:
            yield self._risk(
                home.folder,
                error.message,
                "Triton runs a model.py in a program of its own, compiled for one version of Python",
                "make an environment with one of those Pythons and install Bident there, or take another Triton",
            )
            return
        yield from self._run(home, stub.path, environment)

    def _run(self, home: Home, program: Path, environment: dict[str, str], *arguments: str) -> Iterator[Finding]:
        """Start ``program`` as the system's loader does; without a model it ends by itself."""
        try:
            output_of(program, environment, *arguments)
        except ServeError as error:
            folders = os.pathsep.join(map(str, home.libraries())) or "no folder: there is none"
            yield self._broken(
                program,
                error.message,
                "outside its container Triton finds only the libraries that are installed on this machine",
                f"what is said above; the libraries of its own are looked for in {folders}",
            )
