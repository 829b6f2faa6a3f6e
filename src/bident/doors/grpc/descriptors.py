"""Protobuf messages that are declared here: those of gRPC's own standard services.

They live in a pool of their own, so that packages which bring the same ones along do not collide with them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = re.compile(r"(repeated |oneof )?(\w+) (\w+) = (\d+)")
_TYPES = {"string": 9, "bytes": 12, "int32": 5, "bool": 8}
_ENUM = 14
_MESSAGE = 11


class DeclaredFile:
    """One ``.proto`` file. ``messages`` are its classes by name.

    A field is declared as in a ``.proto`` file: ``repeated string names = 1``. Fields marked ``oneof``
    are all alternatives of each other.
    """

    def __init__(
        self,
        name: str,
        package: str,
        messages: Mapping[str, Sequence[str]],
        *,
        enums: Mapping[str, Sequence[str]] | None = None,
        services: Mapping[str, Sequence[tuple[str, str, str, bool, bool]]],
    ) -> None:
        """``enums``: values by name, in their order from 0, within the message ``Message.Enum`` says.

        ``services``: methods by service: name, request, response, whether the client and the server stream.
        """
        file = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")
        within = {key.rpartition(".")[0]: key.rpartition(".")[2] for key in enums or ()}
        for message, fields in messages.items():
            declared = file.message_type.add(name=message)
            for field in fields:
                _declare(declared, field, f".{package}", within.get(message))
            if message in within:
                values = (enums or {})[f"{message}.{within[message]}"]
                enum = declared.enum_type.add(name=within[message])
                for number, value in enumerate(values):
                    enum.value.add(name=value, number=number)
        for service, methods in services.items():
            offered = file.service.add(name=service)
            for method, request, response, client_streams, server_streams in methods:
                offered.method.add(
                    name=method,
                    input_type=f".{package}.{request}",
                    output_type=f".{package}.{response}",
                    client_streaming=client_streams,
                    server_streaming=server_streams,
                )
        self.name = name
        self.serialized: bytes = file.SerializeToString()
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file)
        self.messages: dict[str, Any] = {
            message: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{message}"))
            for message in messages
        }
        self.symbols = [f"{package}.{symbol}" for symbol in (*messages, *services)]


def _declare(message: Any, text: str, scope: str, enum: str | None) -> None:
    found = _FIELD.fullmatch(text)
    assert found is not None, text
    mark, kind, name, number = found.groups()
    field = message.field.add(name=name, number=int(number), label=3 if mark == "repeated " else 1)
    if kind in _TYPES:
        field.type = _TYPES[kind]
    elif kind == enum:
        field.type = _ENUM
        field.type_name = f"{scope}.{message.name}.{kind}"
    else:
        field.type = _MESSAGE
        field.type_name = f"{scope}.{kind}"
    if mark == "oneof ":
        if not message.oneof_decl:
            message.oneof_decl.add(name=f"{message.name}_choice")
        field.oneof_index = 0
