"""An InferResponse to a ``ModelInferResponse``.

The messages are written as bytes: what is the same in every answer of a shape is made by protobuf once (a
template), the tensors of a batch are turned to bytes once; an answer is its template and its slices of them.
Every output is in ``raw_output_contents``, as with Triton.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from bident.doors.answers import template_of
from bident.doors.classification import classify
from bident.doors.grpc.call import Buffer
from bident.doors.grpc.infer_request import Wanted
from bident.doors.grpc.messages import pb
from bident.doors.shared_tensors import write_output
from bident.engine.servable import Servable
from bident.engine.shared_memory import Window
from bident.errors import ServeError, invalid_arg
from bident.wire.datatypes import BYTES
from bident.wire.infer import Column, InferOutput, InferResponse
from bident.wire.tensor import pack

_COPIED = 64 * 1024
"""Up to this many bytes a column is copied once, and its slices again: that costs less than views on it."""
_LARGEST = 2**31 - 1 - (1 << 20)
"""A protobuf message has no more than 2 GiB; the outputs' descriptions need some of it."""

FINAL: bytes = pb.ModelInferResponse(
    parameters={"triton_final_response": pb.InferParameter(bool_param=True)}
).SerializeToString()
NOT_FINAL: bytes = pb.ModelInferResponse(
    parameters={"triton_final_response": pb.InferParameter(bool_param=False)}
).SerializeToString()
"""The parameter that every answer in a stream has: whether it is the request's last."""


class _Template(NamedTuple):
    """What is the same in every answer of one shape: its model, and its outputs without their data.

    ``joints`` stand before each output's data; empty where its size varies (BYTES). ``text`` is the whole
    of an answer that has no more in it than that, with ``%b`` where each output's data goes.
    """

    model: bytes
    outputs: bytes
    joints: tuple[bytes, ...]
    text: bytes


class _Packed(NamedTuple):
    """A column of a batch of several requests as bytes, and how many a row has."""

    data: Buffer
    row_size: int


class _Plain:
    """For a batch of small numbers: its columns as bytes, made once for all answers, and a template for each size."""

    __slots__ = ("columns", "tables", "texts")

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = columns
        self.tables: list[tuple[bytes, int]] | None = None
        """The bytes of each column, and how many a row has; None where they are strings, or many."""
        self.texts: dict[int, bytes] = {}
        """By the number of rows."""
        tables = []
        for column in columns:
            array = column.array
            if column.datatype is BYTES or array.nbytes > _COPIED:
                return
            data = array.tobytes() if array.dtype == column.datatype.numpy else bytes(pack(array, column.datatype))
            tables.append((data, len(data) // len(array) if array.ndim and len(array) else 0))
        self.tables = tables


def encode(response: InferResponse, wanted: Wanted | None, servable: Servable, final: bytes = b"") -> bytes:
    """The answer as a ``ModelInferResponse``, its outputs as ``wanted``; ``final`` is one more field of it.

    Raises ServeError for outputs that cannot be written as they are wanted, and for more than a message holds.
    """
    if wanted is None and not final:
        text = _encode_plain(response, servable)
        if text is not None:
            return text
    if wanted is None:
        template = template_of(servable.message_templates, response, _make_template)
        tensors = _tensors(response)
    else:
        template, tensors = _as_wanted(response, wanted, servable)
    if sum(map(len, tensors)) > _LARGEST:
        raise _too_large(tensors)
    pieces: list[Buffer] = [template.model]
    if response.id:
        pieces.append(pb.ModelInferResponse(id=response.id).SerializeToString())
    if response.parameters:
        pieces.append(_parameters(response.parameters))
    pieces += (final, template.outputs)
    for joint, tensor in zip(template.joints, tensors, strict=True):
        pieces += (joint or _joint(len(tensor)), tensor)
    return b"".join(pieces)


def _encode_plain(response: InferResponse, servable: Servable) -> bytes | None:
    """An answer of nothing but small numbers, or None if it is another: the hot path."""
    columns = response.columns
    if not columns or response.id or response.parameters:
        return None
    plain: _Plain | None = columns[0].plain
    if plain is None:
        plain = columns[0].plain = _Plain(columns)
    if plain.tables is None or plain.columns is not columns:  # other requests of the batch want other outputs
        return None
    start, stop = response.start, response.stop
    text = plain.texts.get(stop - start)
    if text is None:
        text = template_of(servable.message_templates, response, _make_template).text
        plain.texts[stop - start] = text
    if stop == -1:
        return text % tuple([data for data, _ in plain.tables])
    return text % tuple([data[start * size : stop * size] for data, size in plain.tables])


def _tensors(response: InferResponse) -> list[Buffer]:
    """The bytes of the outputs."""
    start, stop = response.start, response.stop
    columns = response.columns
    if stop == -1 or not columns or stop - start == len(columns[0].array):
        return [pack(column.array, column.datatype) for column in columns]
    tensors: list[Buffer] = []
    for column in columns:
        if column.datatype is BYTES:
            tensors.append(pack(column.array[start:stop], BYTES))
        else:
            packed: _Packed = column.packed or _pack_column(column)
            tensors.append(packed.data[start * packed.row_size : stop * packed.row_size])
    return tensors


def _pack_column(column: Column) -> _Packed:
    data = pack(column.array, column.datatype)
    if len(data) <= _COPIED:
        data = bytes(data)
    packed = column.packed = _Packed(data, len(data) // len(column.array))
    return packed


def _make_template(response: InferResponse) -> _Template:
    outputs = response.outputs
    joints = [
        b"" if output.datatype is BYTES else _joint(output.array.size * output.datatype.size) for output in outputs
    ]
    return _template(_model(response), b"".join(map(_described, outputs)), tuple(joints))


def _template(model: bytes, outputs: bytes, joints: tuple[bytes, ...]) -> _Template:
    parts = [model + outputs, *[joint + b"%b" for joint in (piece.replace(b"%", b"%%") for piece in joints)]]
    parts[0] = parts[0].replace(b"%", b"%%")
    return _Template(model, outputs, joints, b"".join(parts))


def _as_wanted(response: InferResponse, wanted: Wanted, servable: Servable) -> tuple[_Template, list[Buffer]]:
    """The template and the bytes of an answer that classifies outputs, or has them written to shared memory."""
    batched = servable.config.max_batch_size > 0
    described: list[bytes] = []
    tensors: list[Buffer] = []
    for whole in response.outputs:
        want = wanted.get(whole.name)
        output = whole
        if isinstance(want, int):
            output = classify(whole, want, servable.labels.get(whole.name), batched=batched)
        described.append(_described(output))
        if isinstance(want, Window):
            write_output(output, want)
            tensors.append(b"")
        else:
            tensors.append(pack(output.array, output.datatype))
    joints = tuple(_joint(len(tensor)) for tensor in tensors)
    return _template(_model(response), b"".join(described), joints), tensors


def _model(response: InferResponse) -> bytes:
    message = pb.ModelInferResponse(model_name=response.model_name, model_version=response.model_version)
    text: bytes = message.SerializeToString()
    return text


def _described(output: InferOutput) -> bytes:
    tensor = pb.ModelInferResponse.InferOutputTensor(
        name=output.name, datatype=output.datatype.name, shape=output.array.shape
    )
    text: bytes = pb.ModelInferResponse(outputs=[tensor]).SerializeToString()
    return text


def _parameters(parameters: dict[str, Any]) -> bytes:
    message = pb.ModelInferResponse()
    for key, value in parameters.items():
        setattr(message.parameters[key], _FIELDS[type(value)], value)
    text: bytes = message.SerializeToString()
    return text


_FIELDS: dict[type, str] = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}


def _joint(size: int) -> bytes:
    """What stands before ``size`` bytes of a tensor: field 6, length-delimited."""
    return b"\x32" + varint(size)


def varint(number: int) -> bytes:
    """``number`` as protobuf writes lengths: seven bits a byte, the lowest first."""
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def in_stream(answer: bytes) -> bytes:
    """A ``ModelStreamInferResponse`` of one ``ModelInferResponse``, which is its field 2."""
    return b"\x12%b%b" % (varint(len(answer)), answer)


def _too_large(tensors: Sequence[Buffer]) -> ServeError:
    size = sum(map(len, tensors))
    return invalid_arg(
        f"Response has byte size {size} which exceeds gRPC's byte size limit {_LARGEST}. Ask for fewer "
        "outputs or rows at once, or have them written to shared memory"
    )
