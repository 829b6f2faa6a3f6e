"""A real Triton as a peer: NVIDIA's own server, out of the nvidia-pytriton wheel.

The wheel's server has the Python backend and no other. ``make triton`` installs it into
``.venvs/triton`` (see ``make_triton``); benchmarks and conformance tests run it from there.
"""

from __future__ import annotations

import os
import subprocess
from functools import lru_cache
from pathlib import Path

from benchmarks.ports import free_port
from benchmarks.servers import HOST, Server

ENVIRONMENT = Path(__file__).resolve().parents[2] / ".venvs" / "triton"
STUB = "triton_python_backend_stub"


class TritonMissingError(RuntimeError):
    """There is no real Triton to compare with."""

    def __init__(self) -> None:
        super().__init__(f"no real Triton in {ENVIRONMENT}: run `make triton` (Linux x86-64, Python 3.9 to 3.13)")


@lru_cache(maxsize=1)
def python_paths() -> tuple[Path, Path]:
    """The environment's site-packages, and the folder that holds its libpython."""
    ask = "import sysconfig; print(sysconfig.get_path('purelib')); print(sysconfig.get_config_var('LIBDIR'))"
    answer = subprocess.run([ENVIRONMENT / "bin" / "python", "-c", ask], capture_output=True, text=True, check=True)
    site_packages, library_directory = answer.stdout.split("\n")[:2]
    return Path(site_packages), Path(library_directory)


def server_home(site_packages: Path) -> Path:
    """Where the wheel keeps the server, its backends and its stubs."""
    return site_packages / "pytriton" / "tritonserver"


def installed() -> bool:
    """Whether ``make triton`` has been run to its end."""
    if not (ENVIRONMENT / "bin" / "python").exists():
        return False
    site_packages, _ = python_paths()
    home = server_home(site_packages)
    needed = [home / "bin" / "tritonserver", home / "backends" / "python" / STUB, site_packages / "onnxruntime"]
    return all(path.exists() for path in needed)


class RealTriton(Server):
    """A real Triton on ``repository``, ready when entered.

    ``http_port`` 0 takes a free one. ``arguments`` are further ``tritonserver`` flags, for instance
    ``--model-control-mode=explicit``. Raises TritonMissingError when it is not installed.
    """

    def __init__(self, repository: Path, log: Path, *arguments: str, http_port: int = 0, grpc_port: int = 0) -> None:
        if not installed():
            raise TritonMissingError
        site_packages, library_directory = python_paths()
        home = server_home(site_packages)
        port = http_port or free_port()
        self.grpc_port = grpc_port or free_port()
        self.metrics_port = free_port()
        command = [
            home / "bin" / "tritonserver",
            f"--model-repository={repository}",
            f"--backend-directory={home / 'backends'}",
            f"--cache-directory={home / 'caches'}",
            f"--http-address={HOST}",
            f"--http-port={port}",
            f"--grpc-address={HOST}",
            f"--grpc-port={self.grpc_port}",
            f"--metrics-address={HOST}",
            f"--metrics-port={self.metrics_port}",
            *arguments,
        ]
        libraries = [site_packages / "nvidia_pytriton.libs", library_directory]
        environment = {
            "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries)),
            # The stub embeds an isolated interpreter: it ignores PYTHONPATH, and finds the environment's
            # packages only through the first python on the PATH.
            "PATH": os.pathsep.join([str(ENVIRONMENT / "bin"), os.environ.get("PATH", os.defpath)]),
        }
        super().__init__(command, port, log, environment=environment)
