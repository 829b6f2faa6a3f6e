"""What a real Triton and Bident are both asked over gRPC of ``python_repository.write_compared``.

``python tests/e2e/grpc_exchanges.py PORT FOLDER`` asks the server on that port, whose repository is FOLDER, and prints
its answers, as they are kept for Triton in ``data/grpc_answers.json``. Both servers run with
``FLAGS``. Not among the requests is what kills a real Triton 2.51 (answers after
an error where ``triton_grpc_error`` is set).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import json_format
from tritonclient.grpc import service_pb2 as pb

ANSWERS = Path(__file__).parent / "data" / "grpc_answers.json"
FLAGS = ("--model-control-mode=explicit", "--load-model=*")
_SERVICE = "inference.GRPCInferenceService"
_SECONDS = 20.0


@dataclass(frozen=True)
class Exchange:
    """One call: its method, and one message, or several over a stream."""

    method: str
    messages: tuple[Any, ...]
    metadata: dict[str, str] = field(default_factory=dict)

    def send(self, channel: grpc.Channel) -> dict[str, Any]:
        """The answers as JSON, the status and its details."""
        path = self.method if self.method.startswith("/") else f"/{_SERVICE}/{self.method}"
        raw = [message if isinstance(message, bytes) else message.SerializeToString() for message in self.messages]
        metadata = tuple(self.metadata.items())
        said: list[Any] = []
        try:
            if self.method == "ModelStreamInfer":
                for answer in channel.stream_stream(path)(iter(raw), metadata=metadata, timeout=_SECONDS):
                    said.append(self._read(answer))
            else:
                said.append(self._read(channel.unary_unary(path)(raw[0], metadata=metadata, timeout=_SECONDS)))
        except grpc.RpcError as error:
            return {"answers": said, "status": error.code().name, "details": error.details()}
        return {"answers": said, "status": "OK", "details": ""}

    def _read(self, answer: bytes) -> Any:
        kind = getattr(pb, f"{self.method}Response", None)
        if kind is None:
            return answer.hex()
        document = json_format.MessageToDict(kind.FromString(answer), preserving_proto_field_name=True)
        return _without_times(document)


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(item) for key, item in value.items() if key not in ("ns", "last_inference")}
    return [_without_times(item) for item in value] if isinstance(value, list) else value


def parameter(value: Any, kind: str = "") -> Any:
    kinds = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}
    return pb.InferParameter(**{kind or kinds[type(value)]: value})


def typed(word: str, field_name: str, values: list[Any], shape: tuple[int, ...] = (2,), **fields: Any) -> Any:
    request = pb.ModelInferRequest(model_name="types", **fields)
    contents = request.inputs.add(name=f"IN_{word}", datatype=word, shape=shape).contents
    contents.SetInParent()
    getattr(contents, field_name).extend(values)
    return request


def raw(word: str, *data: bytes, shape: tuple[int, ...] = (2,), **fields: Any) -> Any:
    request = pb.ModelInferRequest(model_name="types", raw_input_contents=data, **fields)
    request.inputs.add(name=f"IN_{word}", datatype=word, shape=shape)
    return request


def script(code: str, model: str = "script", **fields: Any) -> Any:
    request = pb.ModelInferRequest(model_name=model, **fields)
    request.inputs.add(name="CODE", datatype="BYTES", shape=[1]).contents.bytes_contents.append(code.encode())
    return request


def changed(request: Any, change: Callable[[Any], object]) -> Any:
    change(request)
    return request


def _memory(part: str, **values: Any) -> Any:
    request = typed("FP32", "fp32_contents", [1, 2])
    request.outputs.add(name="OUT_FP32")
    if part == "inputs":
        request.inputs[0].ClearField("contents")
    for key, value in values.items():
        getattr(request, part)[0].parameters[key].CopyFrom(parameter(value))
    return request


def _classes(value: Any) -> Any:
    request = pb.ModelInferRequest(model_name="rows")
    request.inputs.add(name="X", datatype="FP32", shape=[2, 2]).contents.fp32_contents.extend([1, 2, 4, 3])
    request.outputs.add(name="Y").parameters["classification"].CopyFrom(value)
    return request


def infer(message: Any) -> Exchange:
    return Exchange("ModelInfer", (message,))


def stream(*messages: Any, **metadata: str) -> Exchange:
    return Exchange("ModelStreamInfer", messages, metadata)


WANTS_END = {"triton_enable_empty_final_response": parameter(True)}
_SENDER = "sender = request.get_response_sender(); "
_FLAG = "pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL"
TWO = f"{_SENDER}sender.send(said(0)); sender.send(said(1)); sender.send(flags={_FLAG})"
ONE_AND_END = f"{_SENDER}sender.send(said(1), {_FLAG})"
END = f"{_SENDER}sender.send(flags={_FLAG})"
ERROR_BETWEEN = (
    f"{_SENDER}sender.send(said(1)); "
    "sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError('bad', pb_utils.TritonError.NOT_FOUND))); "
    f"sender.send(said(2)); sender.send(flags={_FLAG})"
)

REQUESTS: dict[str, Exchange] = {
    "not a message": infer(b"\xff\xff\xff"),
    "not a method": Exchange("Nope", (b"",)),
    "raw: FP32": infer(raw("FP32", b"\0\0\xc0\x3f\0\0\0\x80")),
    "raw: BF16": infer(raw("BF16", b"\x81\x3f\x00\xc0")),
    "raw: one too many": infer(raw("FP32", b"\0" * 8, b"\0")),
    "raw: none": infer(raw("FP32")),
    "raw: too short": infer(raw("FP32", b"\0" * 7)),
    "raw: BYTES": infer(raw("BYTES", b"\1\0\0\0a\0\0\0\0", id="é")),
    "raw: BYTES, too few": infer(raw("BYTES", b"\1\0\0\0a")),
    "raw: BYTES, cut": infer(raw("BYTES", b"\1\0\0\0a\5\0\0\0b")),
    "typed: FP32": infer(typed("FP32", "fp32_contents", [1.5, -0.0])),
    "typed: FP64": infer(typed("FP64", "fp64_contents", [1.5, -0.0])),
    "typed: UINT8": infer(typed("UINT8", "uint_contents", [0, 255])),
    "typed: UINT64": infer(typed("UINT64", "uint64_contents", [0, 2**64 - 1])),
    "typed: BOOL": infer(typed("BOOL", "bool_contents", [True, False])),
    "typed: BYTES": infer(typed("BYTES", "bytes_contents", [b"a", b""])),
    "typed: BYTES, too few": infer(typed("BYTES", "bytes_contents", [b"a"])),
    "typed: too few": infer(typed("FP32", "fp32_contents", [1])),
    "typed: none": infer(typed("FP32", "fp32_contents", [])),
    "typed: another field": infer(typed("FP32", "int_contents", [1, 2])),
    "typed: FP16": infer(typed("FP16", "fp32_contents", [1, 2])),
    "typed: too large": infer(typed("UINT8", "uint_contents", [256, 2])),
    "typed: two fields": infer(
        changed(typed("INT32", "int_contents", [1, 2]), lambda it: it.inputs[0].contents.fp32_contents.append(1))
    ),
    "typed and raw": infer(typed("FP32", "fp32_contents", [1, 2], raw_input_contents=[b"\0" * 8])),
    "datatype that is none": infer(typed("NOPE", "fp32_contents", [])),
    "shape of -1": infer(typed("FP32", "fp32_contents", [1], shape=(-1,))),
    "input twice": infer(changed(typed("FP32", "fp32_contents", [1, 2]), lambda it: it.inputs.append(it.inputs[0]))),
    "output twice": infer(
        changed(
            typed("FP32", "fp32_contents", [1, 2]),
            lambda it: it.outputs.extend([pb.ModelInferRequest.InferRequestedOutputTensor(name="OUT_FP32")] * 2),
        )
    ),
    "output that is none": infer(
        changed(typed("FP32", "fp32_contents", [1, 2]), lambda it: it.outputs.add(name="OUT_FP33"))
    ),
    "unknown model": infer(pb.ModelInferRequest(model_name="nobody")),
    "decoupled": infer(script(TWO, "streams")),
    "raised": infer(script("raise ValueError(3)", id="q")),
    "classes": infer(_classes(parameter(1))),
    "classes: more than there are": infer(_classes(parameter(5))),
    "classes: 0": infer(_classes(parameter(0))),
    "classes: text": infer(_classes(parameter("1"))),
    "classes: unsigned": infer(_classes(parameter(1, "uint64_param"))),
    "model parameters": infer(
        script(
            "answer = sorted(json.loads(request.parameters()).items())",
            parameters={"a": parameter(1), "b": parameter(True), "c": parameter("d"), "e": parameter(1.5)},
        )
    ),
    "details": infer(
        script(
            "answer = [request.request_id(), request.correlation_id(), request.flags(), request.timeout()]",
            id="i",
            parameters={
                "sequence_id": parameter("s"),
                "sequence_start": parameter(True),
                "timeout": parameter(123456),
                "priority": parameter(1, "uint64_param"),
            },
        )
    ),
    "health": Exchange("/grpc.health.v1.Health/Check", (b"",)),
    "health of any service": Exchange("/grpc.health.v1.Health/Check", (b"\x0a\x01x",)),
    "live": Exchange("ServerLive", (b"",)),
    "ready": Exchange("ServerReady", (b"",)),
    "index": Exchange("RepositoryIndex", (b"",)),
    "index: ready": Exchange("RepositoryIndex", (pb.RepositoryIndexRequest(ready=True),)),
    "index: of one repository": Exchange("RepositoryIndex", (pb.RepositoryIndexRequest(repository_name="x"),)),
    "log settings: file": Exchange(
        "LogSettings", (pb.LogSettingsRequest(settings={"log_file": {"string_param": "x"}}),)
    ),
    "trace settings": Exchange("TraceSetting", (b"",)),
    "trace settings: unknown model": Exchange("TraceSetting", (pb.TraceSettingRequest(model_name="nobody"),)),
    "memory": Exchange("SystemSharedMemoryStatus", (b"",)),
    "memory: unknown": Exchange("SystemSharedMemoryStatus", (pb.SystemSharedMemoryStatusRequest(name="r"),)),
    "memory: forget": Exchange("SystemSharedMemoryUnregister", (pb.SystemSharedMemoryUnregisterRequest(name="r"),)),
    "cuda memory": Exchange("CudaSharedMemoryStatus", (b"",)),
    "cuda memory: forget": Exchange("CudaSharedMemoryUnregister", (b"",)),
    "stream: nothing": stream(),
    "stream: two": stream(script("answer = 1", id="a"), script("answer = 2", id="b")),
    "stream: the end is no answer of its own": stream(script("answer = 1", id="a", parameters=WANTS_END)),
    "stream: decoupled": stream(script(TWO, "streams", id="a")),
    "stream: decoupled, with its end": stream(script(TWO, "streams", id="a", parameters=WANTS_END)),
    "stream: decoupled, with its end, version": stream(
        script(TWO, "streams", id="a", model_version="1", parameters=WANTS_END)
    ),
    "stream: decoupled, last with outputs": stream(script(ONE_AND_END, "streams", id="a", parameters=WANTS_END)),
    "stream: decoupled, no answer": stream(script(END, "streams", id="a")),
    "stream: decoupled, no answer, with its end": stream(script(END, "streams", id="a", parameters=WANTS_END)),
    "stream: decoupled, an error between": stream(script(ERROR_BETWEEN, "streams", id="a", model_version="1")),
    "stream: raised": stream(script("raise ValueError(3)", id="a"), script("answer = 2", id="b")),
    "stream: raised, error as status": stream(script("raise ValueError(3)", id="a"), triton_grpc_error="true"),
    "stream: unknown model": stream(script("", "nobody", id="a"), script("answer = 2", id="b")),
    "stream: unknown model, error as status": stream(
        script("", "nobody", id="a"), script("answer = 2", id="b"), triton_grpc_error="true"
    ),
    "stream: no inputs": stream(pb.ModelInferRequest(model_name="streams", id="x")),
    "stream: version that is none": stream(pb.ModelInferRequest(model_name="script", id="x", model_version="q")),
    "stream: not a message": stream(b"\xff\xff\xff"),
}
for _word in ("", "1", "01", "-1", "x", "1x", " 1", "9", "9223372036854775808"):
    REQUESTS[f"version {_word!r}"] = infer(typed("FP32", "fp32_contents", [1, 2], model_version=_word))
for _key, _value in (
    ("sequence_id", parameter(True)),
    ("sequence_id", parameter(-3)),
    ("sequence_id", parameter(3, "uint64_param")),
    ("sequence_start", parameter(1)),
    ("sequence_end", parameter("x")),
    ("priority", parameter(-1)),
    ("priority", parameter("a")),
    ("timeout", parameter(4, "uint64_param")),
    ("timeout", parameter(-4)),
    ("triton_x", parameter(True)),
    ("triton_enable_empty_final_response", parameter(True)),
    ("triton_enable_empty_final_response", parameter(1)),
    ("mine", parameter(5, "uint64_param")),
    ("mine", pb.InferParameter()),
    ("headers", parameter("x")),
):
    _kind = _value.WhichOneof("parameter_choice")
    REQUESTS[f"parameter {_key}: {_kind} {getattr(_value, _kind or '', '')}"] = infer(
        typed("FP32", "fp32_contents", [1, 2], parameters={_key: _value})
    )
for _part in ("inputs", "outputs"):
    for _values in (
        {"shared_memory_region": "r"},
        {"shared_memory_region": 1},
        {"shared_memory_offset": 1},
        {"shared_memory_byte_size": 8},
        {"shared_memory_region": "r", "shared_memory_byte_size": "8"},
        {"shared_memory_region": "r", "shared_memory_byte_size": 8},
        {"binary_data_size": 8},
    ):
        REQUESTS[f"{_part}: {json.dumps(_values)}"] = infer(_memory(_part, **_values))
for _name, _version in (("types", ""), ("types", "2"), ("types", "x"), ("nobody", "")):
    for _method in ("ModelReady", "ModelMetadata", "ModelStatistics", "ModelConfig"):
        if (_method, _name, _version) not in (("ModelStatistics", "types", ""), ("ModelConfig", "types", "")):
            _message = getattr(pb, f"{_method}Request")(name=_name, version=_version)
            REQUESTS[f"{_method} {_name} {_version!r}"] = Exchange(_method, (_message,))
_LOAD: tuple[tuple[str, dict[str, Any]], ...] = (
    ("of one repository", {"repository_name": "x"}),
    ("unknown", {"model_name": "nobody"}),
    ("config of the wrong type", {"parameters": {"config": {"int64_param": 1}}}),
    ("file of the wrong type", {"parameters": {"file:1/a": {"string_param": "x"}}}),
    ("unknown parameter", {"parameters": {"odd": {"string_param": "x"}}}),
)
for _what, _fields in _LOAD:
    _message = pb.RepositoryModelLoadRequest(**{"model_name": "rejects", **_fields})
    REQUESTS[f"load: {_what}"] = Exchange("RepositoryModelLoad", (_message,))
for _what, _fields in (
    *_LOAD[:2],
    ("flag of the wrong type", {"parameters": {"unload_dependents": {"int64_param": 1}}}),
    ("unknown parameter", {"model_name": "nobody", "parameters": {"odd": {"int64_param": 1}}}),
):
    _message = pb.RepositoryModelUnloadRequest(**{"model_name": "rejects", **_fields})
    REQUESTS[f"unload: {_what}"] = Exchange("RepositoryModelUnload", (_message,))
for _key, _values in (
    ("trace_rate", ["x"]),
    ("trace_rate", ["5", "6"]),
    ("trace_level", ["OFF", "TENSORS"]),
    ("trace_file", ["a"]),
):
    _message = pb.TraceSettingRequest(settings={_key: {"value": _values}})
    REQUESTS[f"trace settings: {_key} {_values}"] = Exchange("TraceSetting", (_message,))
for _key, _choice in (
    ("log_info", {"uint32_param": 1}),
    ("log_verbose_level", {"bool_param": True}),
    ("log_format", {"string_param": "x"}),
    ("log_format", {"uint32_param": 1}),
    ("log_warning", {}),
    ("log_file", {"string_param": "x"}),
):
    _message = pb.LogSettingsRequest(settings={_key: _choice})
    REQUESTS[f"log settings: {_key} {_choice}"] = Exchange("LogSettings", (_message,))


def answers(port: int, folder: str) -> dict[str, Any]:
    """What the server on ``port`` answers to each of ``REQUESTS``; its repository is called REPOSITORY in it."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        said = {name: exchange.send(channel) for name, exchange in REQUESTS.items()}
    document: dict[str, Any] = json.loads(json.dumps(said).replace(folder, "REPOSITORY"))
    return document


if __name__ == "__main__":
    print(json.dumps(answers(int(sys.argv[1]), sys.argv[2]), indent=1, ensure_ascii=False, sort_keys=True))  # noqa: T201 - its purpose
