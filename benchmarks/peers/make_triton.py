"""``make triton``: a real Triton 2.51 in ``.venvs/triton``, as a peer for benchmarks and conformance tests.

    python -m benchmarks.peers.make_triton

Idempotent. Nothing in Bident itself needs it.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import venv

from benchmarks.peers.triton import ENVIRONMENT, STUB, installed, python_paths, server_home

PACKAGES = ("nvidia-pytriton==0.7.0", "numpy<2", "onnxruntime>=1.17")
"""The server's wheel, and what the peers' ``model.py`` imports: the stub is built against numpy 1."""


def main() -> int:
    """Install what is missing. Returns the exit code."""
    if installed():
        print(f"a real Triton is ready in {ENVIRONMENT}")
        return 0
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        print(f"nvidia-pytriton has wheels for Linux x86-64 only, this is {sys.platform} {platform.machine()}")
        return 1
    if not (ENVIRONMENT / "bin" / "python").exists():
        venv.create(ENVIRONMENT, with_pip=True)
    pip = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    if subprocess.run([*pip, *PACKAGES], check=False).returncode != 0:
        print(f"could not install {', '.join(PACKAGES)} into {ENVIRONMENT}")
        return 1
    _place_stub()
    print(f"a real Triton is ready in {ENVIRONMENT}")
    return 0


def _place_stub() -> None:
    """The wheel carries a stub for each Python; the server looks for one beside the backend's library."""
    site_packages, _ = python_paths()
    home = server_home(site_packages)
    version = site_packages.parent.name.removeprefix("python")
    shutil.copy2(home / "python_backend_stubs" / version / STUB, home / "backends" / "python" / STUB)


if __name__ == "__main__":
    sys.exit(main())
