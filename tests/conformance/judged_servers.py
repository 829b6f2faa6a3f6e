"""The two servers, on one repository, and what was found when both were asked."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import grpc
import psutil
from judged_case import Case
from judged_comparison import Mismatch, mismatches
from judged_grpc import open_channel
from judged_http import HttpClient
from judged_repository import MODELS_SERVED, write_judged

from benchmarks.peers.triton import STUB, RealTriton
from benchmarks.servers import Bident
from real_triton import make_triton

_FLAGS = (
    "--model-control-mode=explicit",
    "--exit-on-error=false",
    "--strict-readiness=false",
    "--cache-config=local,size=1048576",
    "--http-header-forward-pattern=x-judged-.*",
    "--grpc-header-forward-pattern=x-judged-.*",
    "--allow-client-shm=true",
    *(f"--load-model={name}" for name in MODELS_SERVED),
)
_WAYS = ((), ("--triton-compat",))
_NEWER_FLAGS = ("--allow-client-shm=true",)
"""Flags of Triton 2.73 that 2.51 does not know."""


class JudgedBident(Bident):
    """Bident on ``repository``; ``grpc_port`` as the judge has one."""

    def __init__(self, repository: Path, log: Path, *flags: str) -> None:
        super().__init__(repository, log, *_FLAGS, *flags)
        self.metrics_port = self._port("metrics")
        self.grpc_port = self._port("grpc")

    def _port(self, door: str) -> int:
        return next(int(word.partition("=")[2]) for word in self._command if word.startswith(f"--{door}-port="))


class Asked:
    """One running server and the connections to it."""

    def __init__(self, server: Judge | JudgedBident) -> None:
        self.server = server
        self.http = HttpClient(server.port)
        self.grpc: grpc.Channel = open_channel(server.grpc_port)

    def close(self) -> None:
        self.http.close()
        self.grpc.close()


class Judge(RealTriton):
    """The real server; what its models leave behind when it goes is ended too."""

    def __init__(self, repository: Path, log: Path) -> None:
        super().__init__(repository, log, *(flag for flag in _FLAGS if flag not in _NEWER_FLAGS))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            repository = next(word for word in self._command if word.startswith("--model-repository="))
            _end_stubs(repository.partition("=")[2])


def _end_stubs(repository: str) -> None:
    for process in psutil.process_iter(["cmdline"]):
        words: Sequence[str] = process.info["cmdline"] or ()
        if words and words[0].endswith(STUB) and any(word.startswith(repository) for word in words):
            process.kill()


class Court:
    """The judge and Bident in both its ways. Each case is asked once, however often it is looked at."""

    def __init__(self, triton: Asked, bident: Asked, compatible: Asked) -> None:
        self._triton = triton
        self.bident = bident
        self._compatible = compatible
        self._found: dict[str, tuple[list[Mismatch], list[Mismatch]]] = {}

    def compare(self, case: Case, *, compatible: bool = False) -> list[Mismatch]:
        """In what Bident differs; ``compatible``: with --triton-compat."""
        if case.id not in self._found:
            self._found[case.id] = self._ask(case)
        return self._found[case.id][compatible]

    def _ask(self, case: Case) -> tuple[list[Mismatch], list[Mismatch]]:
        usual: list[Mismatch] = []
        compatible: list[Mismatch] = []
        for at, step in enumerate(case.steps):
            where = f"step {at}" if at else ""
            told = step.send(self._triton)
            usual += mismatches(told, step.send(self.bident), where)
            compatible += mismatches(told, step.send(self._compatible), where)
        return usual, compatible


def hold_court(stack: ExitStack, base: Path) -> Court:
    """Start all servers; ``stack`` stops them."""
    make_triton()
    repository = base / "repository"
    write_judged(repository)
    servers = [Judge(repository, base / "triton.log")]
    servers += [JudgedBident(repository, base / f"bident{number}.log", *flags) for number, flags in enumerate(_WAYS)]
    for server in servers:  # side by side: the judge takes its time
        stack.push(server)
        server.start()
    asked = []
    for server in servers:
        server.wait_ready()
        asked.append(Asked(server))
        stack.callback(asked[-1].close)
    return Court(*asked)
