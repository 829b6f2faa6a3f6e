"""One gRPC call as it is made to both servers, and what of the answer is compared.

Messages travel as bytes, so that a call can also carry what no client library would write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from tritonclient.grpc import service_pb2 as pb

DEADLINE_SECONDS = 4.0
SERVICE = "inference.GRPCInferenceService"
_RECEIVE_ANY = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@dataclass(frozen=True)
class GrpcStep:
    """One call. ``messages`` of a unary call is one; ``answer`` is the type of what comes back."""

    method: str
    messages: tuple[bytes, ...]
    answer: type[Message] | None
    streams: bool = False
    metadata: tuple[tuple[str, str], ...] = ()
    compression: grpc.Compression | None = None
    seconds: float = DEADLINE_SECONDS

    def send(self, servers: Any) -> dict[str, Any]:
        """Status and messages of the answer of one server, ready to be compared."""
        channel: grpc.Channel = servers.grpc
        options = {"metadata": self.metadata, "timeout": self.seconds, "compression": self.compression}
        answers: list[Any] = []
        try:
            if self.streams:
                call = channel.stream_stream(self.method)(iter(self.messages), **options)
                answers.extend(self._read(one) for one in call)
            else:
                answers.append(self._read(channel.unary_unary(self.method)(self.messages[0], **options)))
        except grpc.RpcError as error:
            return {"status": error.code().name, "error": error.details(), "answers": answers}
        return {"status": "OK", "answers": answers}

    def _read(self, answer: bytes) -> Any:
        if self.answer is None:
            return answer.hex()
        return MessageToDict(self.answer.FromString(answer), preserving_proto_field_name=True)


def open_channel(port: int) -> grpc.Channel:
    return grpc.insecure_channel(f"127.0.0.1:{port}", options=_RECEIVE_ANY)


def call(name: str, request: Any = None, **more: Any) -> GrpcStep:
    """A unary call of the method ``name``; ``request`` is a message, bytes, or nothing for an empty message."""
    body = request.SerializeToString() if isinstance(request, Message) else request or b""
    return GrpcStep(f"/{SERVICE}/{name}", (body,), getattr(pb, f"{name}Response"), **more)


def stream(requests: Iterable[Any], **more: Any) -> GrpcStep:
    """A ``ModelStreamInfer`` with all ``requests`` sent at once."""
    bodies = tuple(one.SerializeToString() if isinstance(one, Message) else one for one in requests)
    return GrpcStep(f"/{SERVICE}/ModelStreamInfer", bodies, pb.ModelStreamInferResponse, streams=True, **more)


def every_type(value: str = "x") -> Iterator[tuple[str, Any]]:
    """A parameter in every member that its oneof has."""
    for member, given in (
        ("bool_param", True),
        ("int64_param", 3),
        ("string_param", value),
        ("double_param", 1.5),
        ("uint64_param", 4),
    ):
        yield member, pb.InferParameter(**{member: given})
    yield "unset", pb.InferParameter()
