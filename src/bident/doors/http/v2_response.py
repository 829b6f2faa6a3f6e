"""An InferResponse to a v2 answer: JSON, and the binary part where it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from bident.doors.answers import takes_long, template_of
from bident.doors.classification import classify
from bident.doors.http.exchange import Buffer
from bident.doors.http.v2_answering import JSON_ANSWER, Answering
from bident.doors.shared_tensors import write_output
from bident.engine.servable import Servable
from bident.errors import Code, ServeError
from bident.wire.datatypes import BYTES, DATATYPES, DataType
from bident.wire.infer import Column, InferOutput, InferResponse
from bident.wire.tensor import pack

_NUMPY = orjson.OPT_SERIALIZE_NUMPY
_BF16 = DATATYPES["BF16"]


class _Template(NamedTuple):
    """What is the same in every answer of one shape, with ``%b`` where each output's data goes.

    ``numeric`` says that all outputs are numbers that orjson writes from their arrays.
    """

    text: bytes
    numeric: bool


class _Shared:
    """For a batch of several requests: its numbers as text, row by row, written once for all answers."""

    __slots__ = ("columns", "templates")

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = [_rows(_table(column.array)) for column in columns]
        self.templates: dict[int, _Template] = {}


def encode_json(response: InferResponse, servable: Servable) -> bytes | None:
    """The JSON of an answer without a binary part, or None where it would take long: the hot path.

    What is the same in every answer of a shape is written once (a template), the numbers once per
    batch; an answer is its template with its rows of the numbers put in.
    """
    columns, start, stop = response.columns, response.start, response.stop
    if stop == -1 or not columns or stop - start == len(columns[0].array):
        template = template_of(servable.json_templates, response, _make_template)
        if template.numeric:
            data = _rows([column.array.ravel() for column in columns])
        elif takes_long(response):
            return None
        else:
            data = [_written(output) for output in response.outputs]
    else:
        template, data = _slice(response, servable)
        if not data:
            return None
    text = template.text % tuple(data)
    return b'{"id":%b,%b' % (orjson.dumps(response.id), text[1:]) if response.id else text


def _slice(response: InferResponse, servable: Servable) -> tuple[_Template, list[bytes]]:
    """Template and data of an answer that is some rows of a batch; no data where writing it takes long."""
    columns, start, stop = response.columns, response.start, response.stop
    shared: _Shared | None = columns[0].rendered
    if shared is None:
        template = template_of(servable.json_templates, response, _make_template)
        if not template.numeric:
            if takes_long(response):
                return template, []
            return template, [_written(output) for output in response.outputs]
        shared = columns[0].rendered = _Shared(columns)
    rows = stop - start
    if rows not in shared.templates:
        shared.templates[rows] = template_of(servable.json_templates, response, _make_template)
    if rows == 1:
        return shared.templates[1], [texts[start] for texts in shared.columns]
    # The rows of a column without elements are empty, and so are all of them together.
    return shared.templates[rows], [b",".join(texts[start:stop]) if texts[start] else b"" for texts in shared.columns]


def _make_template(response: InferResponse) -> _Template:
    outputs = response.outputs
    head = orjson.dumps({"model_name": response.model_name, "model_version": response.model_version})[:-1]
    described = [
        orjson.dumps({"name": output.name, "datatype": output.datatype.name, "shape": output.array.shape})[:-1]
        for output in outputs
    ]
    pieces = [piece.replace(b"%", b"%%") + b',"data":[%b]}' for piece in described]
    text = head.replace(b"%", b"%%") + b',"outputs":[' + b",".join(pieces) + b"]}"
    numeric = bool(outputs) and not any(output.datatype in (BYTES, _BF16) for output in outputs)
    return _Template(text, numeric)


def _table(array: NDArray[Any]) -> NDArray[Any]:
    """``array`` with one row for each entry of its first axis."""
    return np.ascontiguousarray(array).reshape(len(array), -1)


def _rows(table: Any) -> list[bytes]:
    """The insides of arrays of numbers as JSON: written together, and cut at what can only lie between two."""
    return orjson.dumps(table, option=_NUMPY)[2:-2].split(b"],[")


def _written(output: InferOutput) -> bytes:
    """The elements of an output of any datatype, as the inside of a JSON array."""
    return orjson.dumps(flat(output.name, output.datatype, output.array), option=_NUMPY)[1:-1]


def flat(name: str, datatype: DataType, array: NDArray[Any]) -> Any:
    """A tensor as a flat array that orjson writes (NaN and infinities as null); BYTES as a list of text."""
    if datatype is BYTES:
        return [_text(name, value) for value in array.ravel().tolist()]
    return array.ravel() if datatype is not _BF16 else array.astype(np.float32).ravel()


def encode(response: InferResponse, answering: Answering, servable: Servable) -> tuple[bytes, list[Buffer]]:
    """The JSON of an answer and the pieces of its binary part, as ``answering`` wants them."""
    if answering is JSON_ANSWER and not response.parameters:
        text = encode_json(response, servable)
        if text is not None:
            return text, []
    pieces: list[Buffer] = []
    outputs: list[dict[str, Any]] = []
    batched = servable.config.max_batch_size > 0
    for whole in response.outputs:
        form = answering.forms.get(whole.name, answering.default)
        output = whole
        if form.window is not None:
            write_output(output, form.window)
            outputs.append(_described(output))
            continue
        if form.classes:
            output = classify(whole, form.classes, servable.labels.get(whole.name), batched=batched)
        described = _described(output)
        if form.binary:
            piece = pack(output.array, output.datatype)
            described["parameters"] = {"binary_data_size": len(piece)}
            if len(piece):
                pieces.append(piece)
        else:
            described["data"] = flat(output.name, output.datatype, output.array)
        outputs.append(described)
    document = _head(response)
    document["outputs"] = outputs
    return answering.write(document), pieces


def _described(output: InferOutput) -> dict[str, Any]:
    return {"name": output.name, "datatype": output.datatype.name, "shape": output.array.shape}


def _head(response: InferResponse) -> dict[str, Any]:
    document: dict[str, Any] = {}
    if response.id:
        document["id"] = response.id
    document["model_name"] = response.model_name
    document["model_version"] = response.model_version
    if response.parameters:
        document["parameters"] = response.parameters
    return document


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return bytes(value).decode("utf-8")
    except UnicodeDecodeError:
        raise ServeError(
            Code.INVALID_ARG,
            f"output '{name}' holds bytes that are not UTF-8 text and cannot be JSON; ask for it with "
            f'"parameters": {{"binary_data": true}}',
        ) from None
