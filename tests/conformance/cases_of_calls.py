"""gRPC: every method, parameters in every type, contents that are not what they say, streams, broken messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from judged_case import Case, case
from judged_grpc import GrpcStep, call, every_type, stream
from judged_question import Question, text, vector
from judged_repository import MODELS
from tritonclient.grpc import service_pb2 as pb

KEYS = (
    *("sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "custom", "triton_x", "headers", ""),
    "triton_enable_empty_final_response",
)
ONE = Question("details", (vector("X", "INT32", 1),), id="c-1")


def methods() -> Iterator[Case]:
    for name in ("ServerLive", "ServerReady", "ServerMetadata", "RepositoryIndex", "SystemSharedMemoryStatus"):
        yield case(f"grpc {name}", call(name))
    for name in ("CudaSharedMemoryStatus", "TraceSetting", "LogSettings", "ModelInfer", "ModelMetadata", "ModelConfig"):
        yield case(f"grpc {name} of nothing", call(name))
    for name in ("ModelReady", "RepositoryModelLoad", "SystemSharedMemoryRegister", "CudaSharedMemoryRegister"):
        yield case(f"grpc {name} of nothing", call(name))


def reports() -> Iterator[Case]:
    for ready in (True, False):
        request = pb.RepositoryIndexRequest(ready=ready)
        yield case(f"grpc RepositoryIndex, ready {ready}", call("RepositoryIndex", request))
        yield case(
            f"grpc RepositoryIndex x, ready {ready}",
            call("RepositoryIndex", pb.RepositoryIndexRequest(repository_name="x", ready=ready)),
        )
    subjects = (*MODELS, "chain", "failing", "stream", "broken", "nobody", "a/b", "é")
    for model in subjects:
        for name in ("ModelReady", "ModelMetadata", "ModelConfig"):
            yield case(f"grpc {name} {model}", call(name, getattr(pb, f"{name}Request")(name=model)))
    for version in ("1", "2", "3", "0", "01", "-1", "x", "1.0", "99999999999999999999", " 1"):
        for name in ("ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics"):
            request = getattr(pb, f"{name}Request")(name="versions", version=version)
            if name != "ModelStatistics" or version not in ("1", "3", "01", " 1", "1.0", "-1"):
                yield case(f"grpc {name}, version {version!r}", call(name, request))
    for name in ("nobody", "unloaded"):
        yield case(f"grpc ModelStatistics {name}", call("ModelStatistics", pb.ModelStatisticsRequest(name=name)))


def others() -> Iterator[Case]:
    for method in ("/inference.GRPCInferenceService/Nothing", "/x.Y/Z", "/nothing", "/inference.GRPCInferenceService/"):
        yield case(f"grpc {method}", GrpcStep(method, (b"",), None))
    for service in ("", "inference.GRPCInferenceService", "x"):
        body = b"\n" + bytes([len(service)]) + service.encode() if service else b""
        yield case(f"grpc health of {service!r}", GrpcStep("/grpc.health.v1.Health/Check", (body,), None))


def parameters() -> Iterator[Case]:
    for key in KEYS:
        for member, value in every_type():
            request = ONE.message(raw=False)
            request.parameters[key].CopyFrom(value)
            yield case(f"grpc parameter {key or 'of no name'}, {member}", call("ModelInfer", request))
            if key in ("sequence_id", "triton_enable_empty_final_response", "custom"):
                yield case(f"grpc stream parameter {key}, {member}", stream([request]))
    for name, sent in {"one": (("x-judged-a", "b"),), "another": (("x-other", "b"),)}.items():
        yield case(f"grpc metadata forwarded, {name}", call("ModelInfer", ONE.message(raw=True), metadata=sent))
    for key, value in {"priority": -1, "timeout": -1, "sequence_id": -1}.items():
        request = ONE.message(raw=False)
        request.parameters[key].int64_param = value
        yield case(f"grpc parameter {key}, minus", call("ModelInfer", request))
    for member, value in every_type():
        for key in ("classification", "binary_data", "shared_memory_region", "custom"):
            request = Question("rows", (vector("X", "FP32", 1, 2, 3, 4),)).message(raw=False)
            request.inputs[0].shape[:] = [1, 4]
            request.outputs.add(name="Y").parameters[key].CopyFrom(value)
            yield case(f"grpc output parameter {key}, {member}", call("ModelInfer", request))
        for key in ("binary_data_size", "shared_memory_region", "custom"):
            request = ONE.message(raw=False)
            request.inputs[0].parameters[key].CopyFrom(value)
            yield case(f"grpc input parameter {key}, {member}", call("ModelInfer", request))


def _given(datatype: str = "INT32", shape: Any = (2,), name: str = "A", **contents: Any) -> Any:
    request = pb.ModelInferRequest(model_name="optional")
    given = request.inputs.add(name=name, datatype=datatype, shape=shape)
    for member, values in contents.items():
        getattr(given.contents, member).extend(values)
    return request


def contents() -> Iterator[Case]:
    for member, values in {
        "bool_contents": [True, False],
        "int_contents": [1, 2],
        "int64_contents": [1, 2],
        "uint_contents": [1, 2],
        "uint64_contents": [1, 2],
        "fp32_contents": [1, 2],
        "fp64_contents": [1, 2],
        "bytes_contents": [b"a", b"b"],
    }.items():
        for datatype in (
            "BOOL",
            "INT8",
            "INT32",
            "INT64",
            "UINT8",
            "UINT32",
            "UINT64",
            "FP16",
            "FP32",
            "FP64",
            "BYTES",
        ):
            request = _given(datatype, name=f"IN_{datatype}", **{member: values})
            request.model_name = "types"
            yield case(f"grpc {datatype} in {member}", call("ModelInfer", request))
    for datatype, member, values in (
        ("INT8", "int_contents", [128, -129]),
        ("INT16", "int_contents", [2**15, -(2**15) - 1]),
        ("UINT8", "uint_contents", [256, 2**32 - 1]),
        ("UINT16", "uint_contents", [2**16, 0]),
    ):
        request = _given(datatype, name=f"IN_{datatype}", **{member: values})
        request.model_name = "types"
        yield case(f"grpc {datatype} out of range", call("ModelInfer", request))
    for name, request in {
        "none": _given(),
        "too few": _given(int_contents=[1]),
        "too many": _given(int_contents=[1, 2, 3]),
        "two members": _given(int_contents=[1, 2], fp32_contents=[1, 2]),
        "negative shape": _given(shape=(-1,), int_contents=[1, 2]),
        "no shape": _given(shape=(), int_contents=[1]),
        "huge shape": _given(shape=(2**40, 2**40), int_contents=[1]),
        "empty": _given(shape=(0,)),
        "no datatype": _given(datatype="", int_contents=[1, 2]),
        "odd datatype": _given(datatype="int32", int_contents=[1, 2]),
        "no name": _given(name="", int_contents=[1, 2]),
    }.items():
        yield case(f"grpc contents, {name}", call("ModelInfer", request))
    for name, raws in {
        "right": [b"\0" * 8],
        "none": [],
        "two": [b"\0" * 8, b"\0" * 8],
        "short": [b"\0" * 4],
        "long": [b"\0" * 12],
        "empty": [b""],
    }.items():
        for also in (False, True):
            request = _given(**({"int_contents": [1, 2]} if also else {}))
            request.raw_input_contents.extend(raws)
            yield case(f"grpc raw, {name}{', and contents' if also else ''}", call("ModelInfer", request))


def messages() -> Iterator[Case]:
    good = ONE.message(raw=True).SerializeToString()
    for name, body in {
        "cut": good[:-3],
        "more behind": good + b"\xff\xff",
        "unknown field": good + b"\xfa\x3e\x01x",
        "text": b"hello, this is no message",
        "one byte": b"\x0a",
        "zeros": b"\0\0\0",
        "not UTF-8": b"\x0a\x02\xff\xfe",
    }.items():
        for method in ("ModelInfer", "ModelMetadata", "RepositoryIndex"):
            yield case(f"grpc {method} message, {name}", call(method, body))


def _repeat(*numbers: int, model: str = "repeat", **parameters: Any) -> Any:
    return Question(model, (vector("X", "INT32", *numbers),), parameters=parameters, id="s").message(raw=True)


def streams() -> Iterator[Case]:
    good, bad = ONE.message(raw=True), Question("nobody", ()).message(raw=True)
    fault = Question("faults", (vector("X", "INT32", 3),), id="f").message(raw=True)
    empty_final = {"triton_enable_empty_final_response": True}
    for name, requests in {
        "nothing": [],
        "one": [good],
        "three": [good] * 3,
        "a hundred": [good] * 100,
        "an unknown model": [bad],
        "a mistake between": [good, bad, good],
        "a fault between": [good, fault, good],
        "no answer": [_repeat()],
        "one answer": [_repeat(5)],
        "many answers": [_repeat(*range(200))],
        "answers and an error": [_repeat(1, -2, 3)],
        "an empty final answer": [_repeat(1, 2, **empty_final)],
        "nothing but the end": [_repeat(**empty_final)],
        "a final answer that was not asked for": [_repeat(1, triton_enable_empty_final_response=False)],
        "an ordinary model with an end": [
            Question("details", (vector("X", "INT32", 1),), parameters=empty_final).message(raw=True)
        ],
        "a decoupled ensemble": [_repeat(1, 2, model="stream")],
        "a decoupled ensemble with an end": [_repeat(1, 2, model="stream", **empty_final)],
        "strings": [Question("texts", (vector("X", "BYTES", b"a", "ö".encode()),)).message(raw=True)] * 2,
        "typed": [Question("texts", (vector("X", "BYTES", b"a"),)).message(raw=False)],
    }.items():
        yield case(f"grpc stream of {name}", stream(requests))
        if name in ("nothing", "one", "an unknown model", "a mistake between", "no answer", "one answer"):
            strict = (("triton_grpc_error", "true"),)
            yield case(f"grpc strict stream of {name}", stream(requests, metadata=strict))
    yield case("grpc stream of a broken message", stream([b"\x0a\xff"]))
    raw = Question("texts", ()).message(raw=True)
    raw.inputs.add(name="X", datatype="BYTES", shape=[1])
    raw.raw_input_contents.append(text(b"\xff\xfe"))
    yield case("grpc strings that are not UTF-8", call("ModelInfer", _renamed(raw, "types", "IN_BYTES")))


def _renamed(request: Any, model: str, name: str) -> Any:
    request.model_name = model
    request.inputs[0].name = name
    return request


def cases() -> Iterator[Case]:
    for family in (methods, reports, others, parameters, contents, messages, streams):
        yield from family()
