"""Reads and writes the declaration of a model: protobuf text (``config.pbtxt``) and JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from google.protobuf import json_format, text_format

from bident.errors import ConfigError
from bident.model import syntax
from bident.model.proto import ModelConfigProto, pb

_BOM = b"\xef\xbb\xbf"

_LEFT_AS_STRINGS = frozenset(
    {
        "inference.ModelSequenceBatching.InitialState.dims",
        "inference.ModelOptimizationPolicy.Cuda.GraphSpec.Shape.dim",
        "inference.ModelInstanceGroup.SecondaryDevice.device_id",
    }
)
"""64-bit fields that Triton's JSON shows as strings; it turns all the others into numbers."""


def parse(text: bytes, source: str) -> ModelConfigProto:
    """Read protobuf text format, as UTF-8 with or without a byte order mark.

    ``source`` names the text in errors (its path). Raises ConfigError with source, line:column,
    the field and the cure.
    """
    failed = f"failed to read text proto from {source}"
    if other := syntax.wrong_kind_of_file(text):
        raise ConfigError(f"{failed}: 1:1: {other}")
    # protobuf takes any byte in a comment; a stray one inside a string is refused below.
    decoded = text.removeprefix(_BOM).decode("utf-8", errors="surrogateescape")
    message = pb.ModelConfig()
    try:
        text_format.Parse(decoded, message)
    except text_format.ParseError as error:
        line, column = error.GetLine() or 1, error.GetColumn() or 1
        cause = _printable(syntax.explain(decoded, str(error), line, column))
        raise ConfigError(f"{failed}: {line}:{column}: {cause}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{failed}: 1:1: {_printable(str(error))}; correct the text") from None
    except SystemError:  # what protobuf comes to where a word is expected and is no Unicode
        line = next((number for number, line in enumerate(decoded.split("\n"), 1) if not _is_unicode(line)), 1)
        raise ConfigError(f"{failed}: {line}:1: a byte that is no UTF-8; save the text as UTF-8") from None
    return message


def parse_json(text: str, source: str) -> ModelConfigProto:
    """Read the JSON form of a config: what ``/v2/models/X/config`` shows and the load API accepts.

    Enum words may be in any case, as in Triton. Raises ConfigError ("Invalid config override: ...").
    """
    try:
        tree = json.loads(text)
        if not isinstance(tree, dict):
            raise ValueError(f'expected a JSON object such as {{"max_batch_size": 8}}, got {_printable(text[:40])!r}')
        _upper_enums(pb.ModelConfig.DESCRIPTOR, tree)
        message = pb.ModelConfig()
        json_format.ParseDict(tree, message)
        message.SerializeToString()  # refuses lone surrogates now rather than when the config is shown
    except (json_format.Error, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"Invalid config override: {_json_fault(error)} (in {source})") from None
    return message


def to_dict(proto: ModelConfigProto) -> dict[str, Any]:
    """The JSON object with which Triton answers ``/v2/models/X/config``, in Triton's key order.

    Every plain field is there, set or not; messages and members of a oneof only when set. Names are
    those of the proto file, enums are words, map keys are sorted (Triton's order is that of a hash).
    """
    answer: dict[str, Any] = {}
    chosen: dict[str, Any] = {}
    for field in proto.DESCRIPTOR.fields:
        value = getattr(proto, field.name)
        if _is_map(field):
            answer[field.name] = _map(field, value)
        elif field.is_repeated:
            answer[field.name] = [_single(field, item) for item in value]
        elif field.message_type is not None:
            if proto.HasField(field.name):
                answer[field.name] = to_dict(value)
        elif field.containing_oneof is None:
            answer[field.name] = _single(field, value)
        elif proto.HasField(field.name):
            chosen[field.name] = _single(field, value)
    return answer | chosen  # Triton writes the plain members of a oneof after everything else


def _is_unicode(line: str) -> bool:
    """Whether a line, but for its comment, can be written as UTF-8."""
    return not any("\udc80" <= character <= "\udcff" for character in line.partition("#")[0])


def _is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _map(field: Any, value: Any) -> dict[str, Any]:
    of = field.message_type.fields_by_name["value"]
    return {str(key): _single(of, value[key]) for key in sorted(value)}


def _single(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return to_dict(value)
    if field.enum_type is not None:
        word = field.enum_type.values_by_number.get(value)
        return value if word is None else word.name
    if field.full_name in _LEFT_AS_STRINGS:
        return str(value)
    if field.cpp_type == field.CPPTYPE_FLOAT:
        return _number(float(str(np.float32(value))))
    if field.cpp_type == field.CPPTYPE_DOUBLE:
        return _number(value)
    return value


def _number(value: float) -> float | int | str:
    """As protobuf's JSON has it: whole numbers without a point, words for what JSON cannot say."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _upper_enums(descriptor: Any, tree: Any) -> None:
    """Write enum words of ``tree`` (changed in place) the way the proto file does: all upper case."""
    if not isinstance(tree, dict):
        return
    fields = {**descriptor.fields_by_camelcase_name, **descriptor.fields_by_name}
    for key, value in tree.items():
        field = fields.get(key)
        if field is None:
            continue
        if field.enum_type is not None and isinstance(value, str):
            tree[key] = value.upper()
        elif field.message_type is not None:
            _upper_enums_below(field, value)


def _upper_enums_below(field: Any, value: Any) -> None:
    if not _is_map(field):
        for item in value if isinstance(value, list) else [value]:
            _upper_enums(field.message_type, item)
        return
    of = field.message_type.fields_by_name["value"]
    if of.message_type is not None and isinstance(value, dict):
        for item in value.values():
            _upper_enums(of.message_type, item)


def _json_fault(error: Exception) -> str:
    reason = _printable(str(error))
    head = reason.split(" Available Fields")[0].rstrip(". ")
    if cure := syntax.cure_of(head):
        return f"{head}; {cure}"
    return head


def _printable(text: str) -> str:
    return text.encode("utf-8", errors="backslashreplace").decode("utf-8")
