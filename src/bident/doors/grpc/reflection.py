"""Server reflection (``grpc.reflection.v1`` and ``v1alpha``): tools such as grpcurl ask what there is to call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from google.protobuf import descriptor_pb2

from bident.doors.grpc.call import Buffer, Call, Status
from bident.doors.grpc.descriptors import DeclaredFile
from bident.doors.grpc.infer_request import parse
from bident.doors.grpc.status import STATUS
from bident.errors import ServeError
from bident.wire.shown import shown


def _declared(version: str) -> DeclaredFile:
    return DeclaredFile(
        f"grpc/reflection/{version}/reflection.proto",
        f"grpc.reflection.{version}",
        {
            "ServerReflectionRequest": (
                "string host = 1",
                "oneof string file_by_filename = 3",
                "oneof string file_containing_symbol = 4",
                "oneof ExtensionRequest file_containing_extension = 5",
                "oneof string all_extension_numbers_of_type = 6",
                "oneof string list_services = 7",
            ),
            "ExtensionRequest": ("string containing_type = 1", "int32 extension_number = 2"),
            "ServerReflectionResponse": (
                "string valid_host = 1",
                "ServerReflectionRequest original_request = 2",
                "oneof FileDescriptorResponse file_descriptor_response = 4",
                "oneof ExtensionNumberResponse all_extension_numbers_response = 5",
                "oneof ListServiceResponse list_services_response = 6",
                "oneof ErrorResponse error_response = 7",
            ),
            "FileDescriptorResponse": ("repeated bytes file_descriptor_proto = 1",),
            "ExtensionNumberResponse": ("string base_type_name = 1", "repeated int32 extension_number = 2"),
            "ListServiceResponse": ("repeated ServiceResponse service = 1",),
            "ServiceResponse": ("string name = 1",),
            "ErrorResponse": ("int32 error_code = 1", "string error_message = 2"),
        },
        services={
            "ServerReflection": (
                ("ServerReflectionInfo", "ServerReflectionRequest", "ServerReflectionResponse", True, True),
            )
        },
    )


FILES = {version: _declared(version) for version in ("v1", "v1alpha")}


class Reflection:
    """Answers from the ``.proto`` files of the services that are served."""

    def __init__(self, serialized: Iterable[bytes]) -> None:
        """``serialized``: all files, as FileDescriptorProto, each after those that it imports."""
        self._closures: dict[str, list[bytes]] = {}
        """By file name: the file, and all that it needs."""
        self._file_of: dict[str, str] = {}
        """By symbol: the name of its file."""
        self._services: list[str] = []
        for file in serialized:
            self._add(file)

    def open(self, version: str) -> Callable[[Call], None]:
        """What serves ``ServerReflectionInfo`` of ``grpc.reflection.<version>``."""
        return partial(self._open, FILES[version].messages)

    def _add(self, serialized: bytes) -> None:
        file = descriptor_pb2.FileDescriptorProto.FromString(serialized)
        needed = [text for name in file.dependency for text in self._closures[name]]
        self._closures[file.name] = [serialized, *dict.fromkeys(needed)]
        for service in file.service:
            name = f"{file.package}.{service.name}"
            self._services.append(name)
            self._file_of.update({f"{name}.{method.name}": file.name for method in service.method})
        symbols = [service.name for service in file.service] + [enum.name for enum in file.enum_type]
        for message in file.message_type:
            symbols.append(message.name)
            symbols += [f"{message.name}.{nested.name}" for nested in message.nested_type]
            symbols += [f"{message.name}.{enum.name}" for enum in message.enum_type]
        self._file_of.update({f"{file.package}.{symbol}": file.name for symbol in symbols})

    def _open(self, messages: dict[str, Any], call: Call) -> None:
        def answer(message: Buffer) -> None:
            try:
                request = parse(messages["ServerReflectionRequest"], message)
            except ServeError as error:
                call.finish(STATUS[error.code], error.message)
                return
            response = messages["ServerReflectionResponse"](valid_host=request.host, original_request=request)
            self._answer(request, response)
            call.send(response.SerializeToString())

        call.on_message = answer
        call.on_half_close = call.finish
        call.on_cancel = None

    def _answer(self, request: Any, response: Any) -> None:
        """Fill in what ``request`` asks for."""
        asked = request.WhichOneof("ServerReflectionRequest_choice")
        if asked == "list_services":
            for name in sorted(self._services):
                response.list_services_response.service.add(name=name)
        elif asked == "file_by_filename":
            self._give(self._closures.get(request.file_by_filename), request.file_by_filename, response)
        elif asked == "file_containing_symbol":
            symbol = request.file_containing_symbol
            self._give(self._closures.get(self._file_of.get(symbol, "")), symbol, response)
        else:
            _refuse(response, Status.NOT_FOUND, "there are no extensions: the messages are proto3")

    @staticmethod
    def _give(files: list[bytes] | None, wanted: str, response: Any) -> None:
        if files is None:
            _refuse(response, Status.NOT_FOUND, f"nothing is called {shown(wanted)} here")
        else:
            response.file_descriptor_response.file_descriptor_proto.extend(files)


def _refuse(response: Any, status: Status, message: str) -> None:
    response.error_response.error_code = status
    response.error_response.error_message = message
