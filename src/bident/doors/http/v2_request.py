"""A v2 infer request: HTTP body to InferRequest (JSON, binary tensor extension, raw binary)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bident.doors.declared_tensors import MAX_DIMS, MAX_ELEMENTS, MOST_ITEMS, bad_datatype, bad_shape
from bident.doors.http.v2_answering import AS_JSON, BINARY_ANSWER, JSON_ANSWER, Answering, forms_of
from bident.doors.http.v2_elements import tensor_data
from bident.doors.http.v2_json import loads
from bident.doors.http.v2_parameters import REGION, apply_parameters, misread, window_of
from bident.doors.shared_tensors import SharedInput
from bident.engine.shared_memory import SharedMemory
from bident.errors import MalformedError, ServeError, invalid_arg
from bident.model.config import ModelConfig
from bident.wire.datatypes import BYTES, DATATYPES, DataType
from bident.wire.infer import InferInput, InferRequest, element_count, is_addressable
from bident.wire.shown import shown
from bident.wire.tensor import unpack


def is_long(body: bytes, header_length: int | None, limit: int) -> bool:
    """Whether reading ``body`` takes long for its size: more than ``limit`` bytes of JSON, or strings in the rest.

    Bytes of numbers are taken as they lie. With a backslash in it the JSON may say BYTES in other letters.
    """
    if header_length is None or header_length > limit:
        return True
    header = body[:header_length]
    return b"BYTES" in header or b"\\" in header


def parse(
    model: tuple[str, str],
    body: bytes,
    header_length: int | None,
    received_ns: int,
    memory: SharedMemory,
    read: Callable[[bytes | memoryview], dict[str, Any]] = loads,
) -> tuple[InferRequest, Answering]:
    """The request in ``body`` to ``model`` (name and version, "" for the latest).

    ``header_length`` is the size of the JSON in a body with a binary part, None for a body that is
    all JSON; ``memory`` has the regions that it may name; ``read`` makes a document of JSON.
    Raises INVALID_ARG with what is wrong and where.
    """
    if header_length is None:
        document = read(body)
        binary = _NO_BINARY_PART
    else:
        view = memoryview(body)
        document = read(view[:header_length])
        binary = _BinaryPart(view[header_length:])
    given = document.get("inputs")
    if type(given) is not list or len(given) > MOST_ITEMS:
        raise _bad_inputs(document)
    inputs: dict[str, InferInput] = {}
    shared: list[SharedInput] = []
    for item in given:
        tensor = _input(item, binary, memory, shared)
        if tensor.name in inputs:
            raise invalid_arg(f"input {shown(tensor.name)} already exists in request")
        inputs[tensor.name] = tensor
    if header_length is not None:
        binary.check_all_used()

    request_id = document.get("id", "")
    if type(request_id) is not str:
        raise misread("id", document, "string", "it names the request")
    request = InferRequest(model[0], model[1], request_id, inputs, received_ns)
    answering = JSON_ANSWER
    parameters = document.get("parameters")
    if parameters is not None and apply_parameters(request, parameters):
        answering = BINARY_ANSWER
    outputs = document.get("outputs")
    if outputs is not None and outputs != []:  # anything else that is false is a mistake, not all outputs
        answering = Answering(forms_of(outputs, memory), AS_JSON)
        request.outputs = list(answering.forms)
    if shared:
        answering = replace(answering, shared=tuple(shared))
    return request, answering


def parse_raw(
    model: tuple[str, str], config: ModelConfig, body: bytes, received_ns: int
) -> tuple[InferRequest, Answering]:
    """A body that is nothing but the bytes of the model's only input (``Inference-Header-Content-Length: 0``)."""
    if len(config.inputs) != 1:
        raise invalid_arg(f"Raw request must only have 1 input (found {len(config.inputs)}) to be deduced")
    spec = next(iter(config.inputs.values()))
    lead = (1,) if config.max_batch_size else ()
    if spec.datatype is BYTES:
        if spec.dims != (1,):
            raise invalid_arg(f"For BYTE datatype raw input '{spec.name}', the model must have input shape [1]")
        data = unpack(spec.name, BYTES, (*lead, 1), 1, len(body).to_bytes(4, "little") + body)
        tensor = InferInput(spec.name, BYTES, (*lead, 1), 1, data)
    else:
        shape = (*lead, *_resolve_dims(spec.name, spec.dims, spec.datatype, len(body)))
        count = element_count(shape)
        tensor = InferInput(
            spec.name, spec.datatype, shape, count, unpack(spec.name, spec.datatype, shape, count, body)
        )
    request = InferRequest(model[0], model[1], "", {spec.name: tensor}, received_ns)
    return request, BINARY_ANSWER


def _resolve_dims(name: str, dims: tuple[int, ...], datatype: DataType, size: int) -> tuple[int, ...]:
    if dims.count(-1) > 1:
        raise invalid_arg(
            f"The shape of the raw input {shown(name)} can not be deduced because there are more than one "
            f"variable-sized dimension"
        )
    if -1 not in dims:
        return dims
    fixed = element_count(tuple(dim for dim in dims if dim != -1)) * datatype.size
    if fixed == 0 or size % fixed:
        raise invalid_arg(
            f"the raw input {shown(name)} of {size} bytes is not a multiple of {fixed} bytes, shape {list(dims)}"
        )
    return tuple(size // fixed if dim == -1 else dim for dim in dims)


class _BinaryPart:
    """The bytes after the JSON, handed out to the inputs in their order."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = data
        self._at = 0

    def take(self, name: str, size: object) -> bytes | memoryview:
        if type(size) is not int or size < 0:
            raise MalformedError(
                "Unable to parse 'binary_data_size': attempt to access JSON non-unsigned-integer as unsigned-integer: "
                f"it is how many bytes input {shown(name)} has, got {shown(size)}"
            )
        left = len(self._data) - self._at
        if size > left:
            raise invalid_arg(
                f"unexpected size for input {shown(name)}, expecting {size - left} additional bytes: it declares "
                f"{size}, and {left} are left of the body's binary part"
            )
        self._at += size
        return self._data[self._at - size : self._at]

    def check_all_used(self) -> None:
        left = len(self._data) - self._at
        if left:
            raise invalid_arg(
                f"unexpected additional input data for model: {left} bytes of the body belong to no input"
            )


_NO_BINARY_PART = _BinaryPart(b"")


def _input(item: Any, binary: _BinaryPart, memory: SharedMemory, shared: list[SharedInput]) -> InferInput:
    if type(item) is not dict:
        raise invalid_arg("Unable to parse 'inputs': each input must be a JSON object")
    name = item.get("name")
    if type(name) is not str:
        raise misread("name", item, "string", "every input has a name")
    word = item.get("datatype")
    datatype = DATATYPES.get(word) if type(word) is str else None
    if datatype is None:
        raise _no_datatype(name, item)
    dims = item.get("shape")
    count = 1
    if type(dims) is not list or len(dims) > MAX_DIMS:
        raise _no_shape(name, item)
    for dim in dims:
        if type(dim) is not int or dim < 0 or count > MAX_ELEMENTS:
            raise bad_shape(name, dims)
        count *= dim
    shape = tuple(dims)
    if count > MAX_ELEMENTS or (count == 0 and not is_addressable(shape)):
        raise bad_shape(name, dims)
    if type(item.get("parameters")) is dict:  # as Triton has it: anything else is as good as none
        tensor = InferInput(name, datatype, shape, count, [])
        _fill(tensor, item, binary, memory, shared)
        return tensor
    if "data" not in item:
        raise _one_source(name, [])
    return InferInput(name, datatype, shape, count, tensor_data(name, datatype, shape, count, item["data"]))


def _no_datatype(name: str, item: dict[str, Any]) -> ServeError:
    word = item.get("datatype")
    if type(word) is str:
        return bad_datatype(name, word)
    return misread("datatype", item, "string", f"input {shown(name)} needs one of {', '.join(DATATYPES)}")


def _no_shape(name: str, item: dict[str, Any]) -> ServeError:
    dims = item.get("shape")
    if type(dims) is list:
        return bad_shape(name, dims)
    return misread("shape", item, "array", f"input {shown(name)} needs an array of integers")


def _fill(
    tensor: InferInput, item: dict[str, Any], binary: _BinaryPart, memory: SharedMemory, shared: list[SharedInput]
) -> None:
    """Take the elements of an input with parameters from where it says they are, or note where for later."""
    name, datatype, shape, count = tensor.name, tensor.datatype, tensor.shape, tensor.count
    parameters = item["parameters"]
    source = _source(item, name, parameters)
    if source == "data":
        tensor.data = tensor_data(name, datatype, shape, count, item["data"])
    elif source == REGION:
        shared.append(SharedInput(tensor, window_of(parameters, memory)))
    else:
        tensor.data = unpack(name, datatype, shape, count, binary.take(name, parameters["binary_data_size"]))


def _source(item: dict[str, Any], name: str, parameters: dict[str, Any]) -> str:
    """Where the elements of an input with ``parameters`` are: the one key of the three that it has."""
    sources = ["data"] if "data" in item else []
    sources += [key for key in ("binary_data_size", REGION) if key in parameters]
    if len(sources) != 1:
        raise _one_source(name, sources)
    return sources[0]


def _one_source(name: str, sources: list[str]) -> ServeError:
    given = "".join(f" '{source}'" for source in sources) or " none of them"
    return invalid_arg(
        "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
        f"'shared_memory_region' in 'parameters'. But input {shown(name)} sets{given}"
    )


def _bad_inputs(document: dict[str, Any]) -> ServeError:
    if "inputs" not in document:
        return MalformedError(
            "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'; a request needs "
            '{"inputs": [{"name": ..., "shape": [...], "datatype": ..., "data": [...]}]}'
        )
    if type(document["inputs"]) is list:
        return invalid_arg(f"Unable to parse 'inputs': there are more than {MOST_ITEMS} inputs")
    return MalformedError("Unable to parse 'inputs': attempt to access JSON non-array as array")
