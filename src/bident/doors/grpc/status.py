"""The one table that turns Bident's error codes into gRPC statuses (Triton's ``grpc_utils.cc``)."""

from __future__ import annotations

from bident.doors.grpc.call import Status
from bident.errors import Code

STATUS: dict[Code, Status] = {
    Code.CANCELLED: Status.CANCELLED,
    Code.UNKNOWN: Status.UNKNOWN,
    Code.INVALID_ARG: Status.INVALID_ARGUMENT,
    Code.NOT_FOUND: Status.NOT_FOUND,
    Code.ALREADY_EXISTS: Status.ALREADY_EXISTS,
    Code.UNSUPPORTED: Status.UNIMPLEMENTED,
    Code.INTERNAL: Status.INTERNAL,
    Code.UNAVAILABLE: Status.UNAVAILABLE,
}
