"""Server processes for benchmarks and tests: start, wait until ready, stop, say why one died."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from benchmarks.ports import free_port

HOST = "127.0.0.1"
POLL_SECONDS = 0.01


class ServerDiedError(RuntimeError):
    """A server ended, or did not become ready in time; the message ends with its last log lines."""


class Server:
    """One server process, used as a context manager that is entered when the server is ready.

    ``ready_path`` answers GET with 200 once the server is ready; None means that listening is enough.
    Everything the process prints goes to ``log``.
    """

    def __init__(
        self,
        command: Sequence[object],
        port: int,
        log: Path,
        *,
        ready_path: str | None = "/v2/health/ready",
        environment: dict[str, str] | None = None,
        deadline_seconds: float = 60.0,
    ) -> None:
        self.port = port
        self.log = log
        self._command = [str(word) for word in command]
        self._ready_path = ready_path
        self._environment = {**os.environ, **(environment or {})}
        self._deadline_seconds = deadline_seconds
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id, which is also the id of the process group."""
        if self._process is None:
            raise RuntimeError("the server has not been started")
        return self._process.pid

    def url(self, path: str) -> str:
        """The address of ``path`` (which begins with a slash) on this server."""
        return f"http://{HOST}:{self.port}{path}"

    def start(self) -> None:
        """Start the process without waiting for it."""
        with self.log.open("wb") as output:
            # Its own process group, so that stopping it takes the workers it started along.
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        """Return once the server is ready. Raises ServerDiedError."""
        deadline = time.monotonic() + self._deadline_seconds
        while not self._is_ready():
            self.check_alive()
            if time.monotonic() > deadline:
                raise ServerDiedError(f"not ready after {self._deadline_seconds:g} s: {self.last_words()}")
            time.sleep(POLL_SECONDS)

    def check_alive(self) -> None:
        """Raises ServerDiedError when the process has ended."""
        code = self._process.poll() if self._process else None
        if code is not None:
            raise ServerDiedError(f"exited with {code}: {self.last_words()}")

    def stop(self, grace_seconds: float = 15.0) -> int:
        """SIGTERM, then SIGKILL for the whole group after ``grace_seconds``. Returns the exit code."""
        if self._process is None:
            raise RuntimeError("the server has not been started")
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(grace_seconds)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()

    def __enter__(self) -> Server:
        self.start()
        try:
            self.wait_ready()
        except BaseException:
            self.stop(grace_seconds=1.0)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        died = self._process is not None and self._process.poll() is not None
        code = self.stop()
        if died:
            # What the caller saw, a refused connection for instance, is only the consequence.
            raise ServerDiedError(f"died with {code}: {self.last_words()}") from error

    def _is_ready(self) -> bool:
        if self._ready_path is None:
            with socket.socket() as probe:
                return probe.connect_ex((HOST, self.port)) == 0
        connection = http.client.HTTPConnection(HOST, self.port, timeout=5)
        try:
            connection.request("GET", self._ready_path)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def last_words(self, lines: int = 25) -> str:
        """The command, and the end of what the process has printed."""
        text = self.log.read_text(errors="replace").splitlines()[-lines:]
        return "\n".join([" ".join(self._command), *text])


def bident_command() -> Path:
    """The ``bident`` of the environment that runs the benchmarks."""
    return Path(sys.executable).with_name("bident")


class Bident(Server):
    """``bident serve`` on a repository; ``arguments`` are further flags of the command."""

    def __init__(
        self, repository: Path, log: Path, *arguments: str, subcommand: Sequence[str] = ("serve", "tensor")
    ) -> None:
        port = free_port()
        self.grpc_port = free_port()
        ports = [f"--http-port={port}", f"--grpc-port={self.grpc_port}", f"--metrics-port={free_port()}"]
        command = [bident_command(), *subcommand, f"--model-repository={repository}", *ports, *arguments]
        super().__init__(command, port, log)


class BareLoop(Server):
    """The bare tick-batching loop on one iris ONNX file."""

    def __init__(self, model: Path, log: Path) -> None:
        port = free_port()
        command = [sys.executable, "-m", "benchmarks.peers.bare_loop", model, str(port)]
        super().__init__(command, port, log, ready_path=None)


class BareGrpc(Server):
    """The bare tick-batching loop over gRPC on one iris ONNX file."""

    def __init__(self, model: Path, log: Path) -> None:
        port = free_port()
        command = [sys.executable, "-m", "benchmarks.peers.bare_grpc", model, str(port)]
        super().__init__(command, port, log, ready_path=None)
