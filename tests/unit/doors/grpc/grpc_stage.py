"""The gRPC service without a network: calls that a test plays, on a whole engine or on models played by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from bident.backends.discovery import Backends
from bident.doors.forwarding import Forwarding
from bident.doors.grpc.call import Buffer, Status
from bident.doors.grpc.messages import pb
from bident.doors.grpc.service import GrpcService
from bident.doors.grpc.status import STATUS
from bident.engine.clients import Clients
from bident.engine.control_mode import ControlMode
from bident.engine.engine import Engine
from bident.engine.lifecycle import Lifecycle
from bident.engine.loader import Loader
from bident.engine.shared_memory import SharedMemory
from bident.errors import ServeError
from bident.model.repository import Repository
from bident.wire.datatypes import DATATYPES
from tests.conftest import write_identity
from tests.unit.engine.engine_fakes import NoModels

DEADLINE_S = 20.0
_PREFIX = b"/inference.GRPCInferenceService/"


class FakeCall:
    """One RPC; ``answers`` are the messages sent, ``status`` and ``details`` how it ended (None: it has not)."""

    def __init__(self, method: bytes = b"", metadata: dict[bytes, bytes] | None = None) -> None:
        self.method = method
        self.metadata = metadata or {}
        self.received_ns = time.monotonic_ns()
        self.on_message: Callable[[Buffer], None] = lambda message: None
        self.on_half_close: Callable[[], None] = lambda: None
        self.on_cancel: Callable[[], None] | None = None
        self.answers: list[bytes] = []
        self.status: Status | None = None
        self.details = ""
        self.unsent = 0
        self.is_paused = False
        self._waiting: list[Buffer | None] = []
        self._is_cancelled = False

    @property
    def is_over(self) -> bool:
        return self.status is not None or self._is_cancelled

    def reply(self, message: Buffer) -> None:
        self.send(message)
        self.finish()

    def send(self, message: Buffer) -> None:
        if not self.is_over:
            self.answers.append(bytes(message))

    def finish(self, status: int = 0, message: str = "") -> None:
        if not self.is_over:
            self.status = Status(status)
            self.details = message

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        while self._waiting and not self.is_paused:
            message = self._waiting.pop(0)
            if message is None:
                self.on_half_close()
            else:
                self.on_message(message)

    # What the client does

    def ask(self, *messages: Any) -> None:
        for message in messages:
            raw = message if isinstance(message, bytes) else message.SerializeToString()
            if self.is_paused:
                self._waiting.append(raw)
            else:
                self.on_message(raw)

    def half_close(self) -> None:
        if self.is_paused:
            self._waiting.append(None)
        else:
            self.on_half_close()

    def cancel(self) -> None:
        self._is_cancelled = True
        if self.on_cancel is not None:
            self.on_cancel()

    def said(self, kind: Any = None) -> list[Any]:
        """The answers so far, as messages; of a stream unless ``kind`` says otherwise."""
        return [(kind or pb.ModelStreamInferResponse).FromString(answer) for answer in self.answers]


async def until(condition: Callable[[], Any]) -> None:
    """Wait until ``condition`` holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "in vain"
        await asyncio.sleep(0.001)


class RefusedError(Exception):
    """A call that ended with a status that is an error."""

    def __init__(self, status: Status, details: str) -> None:
        super().__init__(f"{status.name}: {details}")
        self.status = status
        self.details = details


async def unary(service: GrpcService, method: str | bytes, message: Any, **metadata: str) -> bytes:
    """What a unary call is answered; raises RefusedError. As the transport does, ServeError becomes a status."""
    path = method if isinstance(method, bytes) else _PREFIX + method.encode()
    call = FakeCall(path, {key.encode(): value.encode() for key, value in metadata.items()})
    found = service.find(path)
    assert found is not None
    assert found.serve is not None
    try:
        waiting = found.serve(call, message if isinstance(message, bytes) else message.SerializeToString())
        if waiting is not None:
            await waiting
        await until(lambda: call.is_over)
    except ServeError as error:
        raise RefusedError(STATUS[error.code], error.message) from error
    if call.status:
        raise RefusedError(call.status, call.details)
    (answer,) = call.answers
    return answer


class Site:
    """Identity models, one a datatype, named like it in small letters: Y is X, of any shape of two dimensions."""

    def __init__(self, folder: Path, forwarding: Forwarding | None = None, control: str = "none") -> None:
        self._loop = asyncio.new_event_loop()
        for word in DATATYPES:
            declared = "STRING" if word == "BYTES" else word
            write_identity(folder / "models", word.lower(), datatype=declared, dims="-1, -1", batch=0)
        write_identity(folder / "models", "rows", datatype="FP32", dims="3", batch=8)
        self._lifecycle = Lifecycle(Loader(Backends({})), self._loop, Clients())
        self._lifecycle.models = NoModels()
        self.engine = Engine(
            Repository([folder / "models"]),
            self._lifecycle,
            ControlMode(control),
            folder / "overlays",
            shared_memory=SharedMemory(allowed=True),
        )
        self.service = GrpcService(self.engine, name="test", version="0", forwarding=forwarding)
        assert self.run(self.engine.start(None)) == {}

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(work, DEADLINE_S))

    def unary(self, method: str | bytes, message: Any, **metadata: str) -> bytes:
        return self.run(unary(self.service, method, message, **metadata))

    def ask(self, method: str, **fields: Any) -> Any:
        """Ask a method of the inference service by its name, and read its answer."""
        answer = self.unary(method, getattr(pb, f"{method}Request")(**fields))
        return getattr(pb, f"{method}Response").FromString(answer)

    def infer(self, request: Any, **metadata: str) -> Any:
        return pb.ModelInferResponse.FromString(self.unary("ModelInfer", request, **metadata))

    def close(self) -> None:
        self._lifecycle.close()
        self._loop.close()
