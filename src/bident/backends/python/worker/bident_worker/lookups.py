"""The functions of ``pb_utils`` that ask no server: finding tensors by name, and naming datatypes."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from .hints import note_miss

TRITON_STRING_TO_NUMPY: dict[str, Any] = {
    "TYPE_BOOL": bool,
    "TYPE_UINT8": np.uint8,
    "TYPE_UINT16": np.uint16,
    "TYPE_UINT32": np.uint32,
    "TYPE_UINT64": np.uint64,
    "TYPE_INT8": np.int8,
    "TYPE_INT16": np.int16,
    "TYPE_INT32": np.int32,
    "TYPE_INT64": np.int64,
    "TYPE_FP16": np.float16,
    "TYPE_FP32": np.float32,
    "TYPE_FP64": np.float64,
    "TYPE_STRING": np.object_,
}

_NUMPY_TYPES = [np.bool_, *list(TRITON_STRING_TO_NUMPY.values())[1:]]
_LENGTH = struct.Struct("<I")


def get_input_tensor_by_name(inference_request: Any, name: str) -> Any:
    """The request's input tensor called ``name``, None if there is none."""
    for tensor in inference_request._inputs:
        if tensor._name == name:
            return tensor
    note_miss("the request has no input", name, [tensor._name for tensor in inference_request._inputs])
    return None


def get_output_tensor_by_name(inference_response: Any, name: str) -> Any:
    """The response's output tensor called ``name``, None if there is none."""
    for tensor in inference_response._tensors:
        if tensor._name == name:
            return tensor
    failed = "failed, and " if inference_response._error is not None else ""
    found = [tensor._name for tensor in inference_response._tensors]
    note_miss(f"the response {failed}has no output", name, found)
    return None


def get_input_config_by_name(model_config: dict[str, Any], name: str) -> Any:
    """The declaration of the input called ``name``, None if there is none."""
    return _declared(model_config, "input", name)


def get_output_config_by_name(model_config: dict[str, Any], name: str) -> Any:
    """The declaration of the output called ``name``, None if there is none."""
    return _declared(model_config, "output", name)


def _declared(model_config: dict[str, Any], side: str, name: str) -> Any:
    declared = model_config.get(side, ())
    for each in declared:
        if each["name"] == name:
            return each
    note_miss(f"the model's configuration has no {side}", name, [each["name"] for each in declared])
    return None


def using_decoupled_model_transaction_policy(model_config: dict[str, Any]) -> bool:
    """Whether the model may send any number of responses to a request."""
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))


def triton_to_numpy_type(data_type: int) -> Any:
    """numpy's type for Triton's number of a datatype, None if there is none."""
    return _NUMPY_TYPES[data_type - 1] if 1 <= data_type <= len(_NUMPY_TYPES) else None


def numpy_to_triton_type(data_type: Any) -> int | None:
    """Triton's number for numpy's type, None if there is none."""
    if data_type == np.bytes_:
        return len(_NUMPY_TYPES)
    return next((number for number, known in enumerate(_NUMPY_TYPES, 1) if data_type == known), None)


def triton_string_to_numpy(triton_type_string: str) -> Any:
    """numpy's type for a configuration's word for a datatype."""
    return TRITON_STRING_TO_NUMPY[triton_type_string]


def serialize_byte_tensor(input_tensor: Any) -> Any:
    """The strings of a tensor, each behind its length as a little-endian uint32; ``()`` if it has none."""
    if input_tensor.size == 0:
        return ()
    if input_tensor.dtype != np.object_ and input_tensor.dtype.type != np.bytes_:
        return None
    parts: list[bytes] = []
    for item in input_tensor.reshape(-1).tolist():
        text = item if isinstance(item, bytes) else str(item).encode()
        parts += [_LENGTH.pack(len(text)), text]
    return b"".join(parts)


def deserialize_bytes_tensor(encoded_tensor: bytes) -> Any:
    """The flat array of the strings that ``serialize_byte_tensor`` wrote. Raises struct.error on less."""
    strings: list[bytes] = []
    offset = 0
    while offset < len(encoded_tensor):
        (length,) = _LENGTH.unpack_from(encoded_tensor, offset)
        (text,) = struct.unpack_from(f"<{length}s", encoded_tensor, offset + 4)
        strings.append(text)
        offset += 4 + length
    return np.array(strings, dtype=np.object_)
