"""A v2 infer request: HTTP body to InferRequest (JSON, binary tensor extension, raw binary)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bident.doors.http.v2_elements import MOST_ITEMS, tensor_data
from bident.doors.http.v2_json import loads
from bident.errors import Code, ServeError, invalid_arg
from bident.model.config import ModelConfig
from bident.model.hints import closest
from bident.wire.datatypes import BYTES, DATATYPES, DataType
from bident.wire.infer import InferInput, InferRequest, element_count, is_addressable
from bident.wire.shown import shown
from bident.wire.tensor import unpack

_MAX_ELEMENTS = 2**63 - 1
_MAX_DIMS = 64
"""As many as numpy has."""
_RESERVED_PREFIX = "triton_"
_MEMORY_KEYS = ("shared_memory_region", "shared_memory_offset", "shared_memory_byte_size")


@dataclass(frozen=True)
class OutputForm:
    """How the client wants one output: in the binary part or not, and as its ``classes`` best labels if > 0."""

    binary: bool = False
    classes: int = 0


@dataclass(frozen=True)
class Answering:
    """How the client wants its answer: per named output, and for outputs it did not name."""

    forms: dict[str, OutputForm]
    default: OutputForm


_AS_JSON = OutputForm()
_AS_BINARY = OutputForm(binary=True)
JSON_ANSWER = Answering({}, _AS_JSON)
BINARY_ANSWER = Answering({}, _AS_BINARY)


def is_long(body: bytes, header_length: int | None, limit: int) -> bool:
    """Whether reading ``body`` takes long for its size: more than ``limit`` bytes of JSON, or strings in the rest.

    Bytes of numbers are taken as they lie. With a backslash in it the JSON may say BYTES in other letters.
    """
    if header_length is None or header_length > limit:
        return True
    header = body[:header_length]
    return b"BYTES" in header or b"\\" in header


def parse(
    model: tuple[str, str], body: bytes, header_length: int | None, received_ns: int
) -> tuple[InferRequest, Answering]:
    """The request in ``body`` to ``model`` (name and version, "" for the latest).

    ``header_length`` is the size of the JSON in a body with a binary part, None for a body that is
    all JSON. Raises INVALID_ARG with what is wrong and where.
    """
    if header_length is None:
        document = loads(body)
        binary = _NO_BINARY_PART
    else:
        view = memoryview(body)
        document = loads(view[:header_length])
        binary = _BinaryPart(view[header_length:])
    given = document.get("inputs")
    if type(given) is not list or len(given) > MOST_ITEMS:
        raise _bad_inputs(document)
    inputs: dict[str, InferInput] = {}
    for item in given:
        tensor = _input(item, binary)
        if tensor.name in inputs:
            raise invalid_arg(f"input {shown(tensor.name)} already exists in request")
        inputs[tensor.name] = tensor
    if header_length is not None:
        binary.check_all_used()

    request_id = document.get("id", "")
    if type(request_id) is not str:
        raise invalid_arg("Unable to parse 'id': attempt to access JSON non-string as string")
    request = InferRequest(model[0], model[1], request_id, inputs, received_ns)
    answering = JSON_ANSWER
    parameters = document.get("parameters")
    if parameters is not None and _apply_parameters(request, parameters):
        answering = BINARY_ANSWER
    outputs = document.get("outputs")
    if outputs is not None and outputs != []:  # anything else that is false is a mistake, not all outputs
        answering = Answering(_outputs(outputs), _AS_JSON)
        request.outputs = list(answering.forms)
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
        if spec.dims not in ((1,), (-1,)):
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
            raise invalid_arg(f"input {shown(name)}: 'binary_data_size' must be a number of bytes, got {shown(size)}")
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


def _input(item: Any, binary: _BinaryPart) -> InferInput:
    if type(item) is not dict:
        raise invalid_arg("Unable to parse 'inputs': each input must be a JSON object")
    name = item.get("name")
    if type(name) is not str:
        raise invalid_arg(f"Unable to parse 'inputs': an input has no 'name' that is a string, got {shown(name)}")
    word = item.get("datatype")
    datatype = DATATYPES.get(word) if type(word) is str else None
    if datatype is None:
        raise _bad_datatype(name, word)
    dims = item.get("shape")
    count = 1
    if type(dims) is not list or len(dims) > _MAX_DIMS:
        raise _bad_shape(name, dims)
    for dim in dims:
        if type(dim) is not int or dim < 0 or count > _MAX_ELEMENTS:
            raise _bad_shape(name, dims)
        count *= dim
    shape = tuple(dims)
    if count > _MAX_ELEMENTS or (count == 0 and not is_addressable(shape)):
        raise _bad_shape(name, dims)
    if "parameters" in item:
        return _input_with_parameters(item, name, datatype, shape, count, binary)
    if "data" not in item:
        raise _one_source(name, [])
    return InferInput(name, datatype, shape, count, tensor_data(name, datatype, shape, count, item["data"]))


def _input_with_parameters(
    item: dict[str, Any],
    name: str,
    datatype: DataType,
    shape: tuple[int, ...],
    count: int,
    binary: _BinaryPart,
) -> InferInput:
    parameters = item["parameters"]
    if type(parameters) is not dict:
        raise invalid_arg(f"Unable to parse 'parameters' of input {shown(name)}: it must be a JSON object")
    sources = [key for key in ("data",) if key in item]
    sources += [key for key in ("binary_data_size", "shared_memory_region") if key in parameters]
    if len(sources) != 1:
        raise _one_source(name, sources)
    if sources[0] == "data":
        data = tensor_data(name, datatype, shape, count, item["data"])
    elif sources[0] == "binary_data_size":
        data = unpack(name, datatype, shape, count, binary.take(name, parameters["binary_data_size"]))
    else:
        raise no_shared_memory(parameters["shared_memory_region"])
    return InferInput(name, datatype, shape, count, data)


def no_shared_memory(region: object) -> ServeError:
    """Triton's answer to a region that nobody registered (registering is off on this server)."""
    return ServeError(Code.NOT_FOUND, f"Unable to find shared memory region: {shown(region)}")


def _one_source(name: str, sources: list[str]) -> ServeError:
    given = "".join(f" '{source}'" for source in sources) or " none of them"
    return invalid_arg(
        "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
        f"'shared_memory_region' in 'parameters'. But input {shown(name)} sets{given}"
    )


def _bad_shape(name: str, dims: Any) -> ServeError:
    if type(dims) is not list:
        return invalid_arg(
            f"Unable to parse 'shape': input {shown(name)} needs an array of integers, got {shown(dims)}"
        )
    if len(dims) > _MAX_DIMS:
        return invalid_arg(
            f"Unable to parse 'shape': input {shown(name)} has more than {_MAX_DIMS} dimensions: {shown(dims)}"
        )
    if all(type(dim) is int and dim >= 0 for dim in dims):
        return invalid_arg(
            f"input {shown(name)} has shape {shown(dims)}, which causes total element count to exceed maximum size "
            f"{_MAX_ELEMENTS}"
        )
    return invalid_arg(
        f"Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer: input "
        f"{shown(name)} contains one or more invalid dimensions: every one must be an integer >= 0, got {shown(dims)}"
    )


def _bad_datatype(name: str, word: object) -> ServeError:
    hint = f"it must be one of {', '.join(DATATYPES)}"
    if isinstance(word, str):
        bare = word.upper().removeprefix("TYPE_")
        aliases = {"STRING": "BYTES", "FLOAT32": "FP32", "FLOAT": "FP32", "FLOAT64": "FP64", "DOUBLE": "FP64"}
        guess = aliases.get(bare, bare)
        near = closest(guess, DATATYPES)
        if near is not None:
            hint = f"did you mean '{near}'?"
    return invalid_arg(f"invalid datatype for input {shown(name)}: got {shown(word)}; {hint}")


def _bad_inputs(document: dict[str, Any]) -> ServeError:
    if "inputs" not in document:
        return invalid_arg(
            "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'; a request needs "
            '{"inputs": [{"name": ..., "shape": [...], "datatype": ..., "data": [...]}]}'
        )
    if type(document["inputs"]) is list:
        return invalid_arg(f"Unable to parse 'inputs': there are more than {MOST_ITEMS} inputs")
    return invalid_arg("Unable to parse 'inputs': attempt to access JSON non-array as array")


def _apply_parameters(request: InferRequest, parameters: Any) -> bool:
    """Read the request's parameters into ``request``; returns whether outputs go to the binary part by default."""
    if type(parameters) is not dict:
        raise invalid_arg("Unable to parse 'parameters': it must be a JSON object")
    custom = dict(parameters)
    binary = _boolean("binary_data_output", custom.pop("binary_data_output", False))
    request.priority = _unsigned("priority", custom.pop("priority", 0))
    request.timeout_us = _unsigned("timeout", custom.pop("timeout", 0))
    request.sequence_start = _boolean("sequence_start", custom.pop("sequence_start", False))
    request.sequence_end = _boolean("sequence_end", custom.pop("sequence_end", False))
    sequence = custom.pop("sequence_id", 0)
    request.sequence_id = sequence if type(sequence) is str else _unsigned("sequence_id", sequence)
    for key, value in custom.items():
        _check_parameter(key, value)
    request.parameters = custom or None
    return binary


def _check_parameter(key: str, value: Any) -> None:
    if key.startswith(_RESERVED_PREFIX):
        raise invalid_arg(
            f"parameter keys starting with '{_RESERVED_PREFIX}' are reserved for Triton usage and should not "
            f"be specified: rename {shown(key)}"
        )
    elif type(value) not in (str, int, float, bool):
        raise invalid_arg(
            f"parameter {shown(key)} has invalid type. It should be either 'bool', 'int', 'float' or 'string'"
        )


def _boolean(key: str, value: Any) -> bool:
    if type(value) is not bool:
        raise invalid_arg(
            f"Unable to parse {shown(key)}: attempt to access JSON non-boolean as boolean, got {shown(value)}"
        )
    return value


def _unsigned(key: str, value: Any) -> int:
    if type(value) is not int or value < 0:
        raise invalid_arg(
            f"Unable to parse {shown(key)}: attempt to access JSON non-unsigned-integer as unsigned-integer, "
            f"got {shown(value)}"
        )
    return value


def _outputs(outputs: Any) -> dict[str, OutputForm]:
    if type(outputs) is not list:
        raise invalid_arg("Unable to parse 'outputs': attempt to access JSON non-array as array")
    if len(outputs) > MOST_ITEMS:
        raise invalid_arg(f"Unable to parse 'outputs': there are more than {MOST_ITEMS} outputs")
    forms: dict[str, OutputForm] = {}
    for item in outputs:
        name = item.get("name") if type(item) is dict else None
        if type(name) is not str:
            raise invalid_arg('Unable to parse \'outputs\': each output must be a JSON object such as {"name": "..."}')
        if name in forms:
            raise invalid_arg(f"output {shown(name)} already exists in request")
        forms[name] = _form(name, item.get("parameters"))
    return forms


def _form(name: str, parameters: Any) -> OutputForm:
    if parameters is None:
        return _AS_JSON
    if type(parameters) is not dict:
        raise invalid_arg(f"Unable to parse 'parameters' of output {shown(name)}: it must be a JSON object")
    if any(key in parameters for key in _MEMORY_KEYS):
        if "classification" in parameters:
            raise invalid_arg(
                f"Output can't set both 'shared_memory_region' and 'classification': output {shown(name)}"
            )
        raise no_shared_memory(parameters.get("shared_memory_region"))
    binary = _boolean("binary_data", parameters.get("binary_data", False))
    classes = _unsigned("classification", parameters.get("classification", 0))
    return OutputForm(binary, classes)
