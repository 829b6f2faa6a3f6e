"""An InferResponse to a v2 answer: JSON, and the binary part where it is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from bident.doors.classification import classify
from bident.doors.http.exchange import Buffer
from bident.doors.http.v2_request import JSON_ANSWER, Answering
from bident.engine.servable import Servable
from bident.errors import Code, ServeError
from bident.wire.datatypes import BYTES, DATATYPES, DataType
from bident.wire.infer import Column, InferResponse
from bident.wire.tensor import pack

_NUMPY = orjson.OPT_SERIALIZE_NUMPY
_MAX_FRAMES = 1024
_BF16 = DATATYPES["BF16"]


def encode_json(response: InferResponse, servable: Servable) -> bytes:
    """The JSON of an answer without a binary part: the hot path.

    What is the same in every answer of a shape is written once (a *frame*), the numbers once per
    batch; an answer is its frame with its rows of the numbers put in.
    """
    columns = response.columns
    rows = response.stop - response.start
    key = (rows, *[(column.name, column.array.shape[response.stop != -1 :]) for column in columns])
    frame = servable.answer_frames.get(key)
    if frame is None:
        if len(servable.answer_frames) >= _MAX_FRAMES:
            servable.answer_frames.clear()
        frame = servable.answer_frames[key] = _frame(response)
    parts = [b'{"id":' + orjson.dumps(response.id) + b","] if response.id else [b"{"]
    for piece, column in zip(frame, columns, strict=False):
        parts += (piece, _data(column, response.start, response.stop), b"]")
    parts.append(frame[-1])
    return b"".join(parts)


def _frame(response: InferResponse) -> list[bytes]:
    """The text before each output's data, and after the last one's."""
    head = orjson.dumps({"model_name": response.model_name, "model_version": response.model_version})
    pieces: list[bytes] = []
    before = head[1:-1] + b',"outputs":[{'
    for output in response.outputs:
        described = {"name": output.name, "datatype": output.datatype.name, "shape": output.array.shape}
        pieces.append(before + orjson.dumps(described)[1:-1] + b',"data":[')
        before = b"},{"
    return [*pieces, b"}]}" if pieces else head[1:-1] + b',"outputs":[]}']


def _data(column: Column, start: int, stop: int) -> bytes:
    """Rows ``start`` to ``stop`` of a column (all of it where that is -1), as the inside of a JSON array."""
    array = column.array
    whole = stop == -1 or stop - start == len(array)
    if whole or column.datatype is BYTES:
        part = array if whole else array[start:stop]
        return orjson.dumps(_flat(column.name, column.datatype, part), option=_NUMPY)[1:-1]
    rows: list[bytes] | None = column.rendered
    if rows is None:
        # Once for all answers of the batch; what lies between two rows can only be "],[".
        table = _flat(column.name, column.datatype, array).reshape(len(array), -1)
        rows = column.rendered = orjson.dumps(table, option=_NUMPY)[2:-2].split(b"],[")
    return rows[start] if stop - start == 1 else b",".join(rows[start:stop])


def _flat(name: str, datatype: DataType, array: NDArray[Any]) -> Any:
    """A tensor as a flat array that orjson writes (NaN and infinities as null); BYTES as a list of text."""
    if datatype is BYTES:
        return [_text(name, value) for value in array.ravel().tolist()]
    return array.ravel() if datatype is not _BF16 else array.astype(np.float32).ravel()


def encode(response: InferResponse, answering: Answering, servable: Servable) -> tuple[bytes, list[Buffer]]:
    """The JSON of an answer and the pieces of its binary part, as ``answering`` wants them."""
    if answering is JSON_ANSWER and not response.parameters:
        return encode_json(response, servable), []
    pieces: list[Buffer] = []
    outputs: list[dict[str, Any]] = []
    batched = servable.config.max_batch_size > 0
    for whole in response.outputs:
        form = answering.forms.get(whole.name, answering.default)
        labels = servable.labels.get(whole.name)
        output = classify(whole, form.classes, labels, batched=batched) if form.classes else whole
        described: dict[str, Any] = {
            "name": output.name,
            "datatype": output.datatype.name,
            "shape": output.array.shape,
        }
        if form.binary:
            piece = pack(output.array, output.datatype)
            described["parameters"] = {"binary_data_size": len(piece)}
            if len(piece):
                pieces.append(piece)
        else:
            described["data"] = _flat(output.name, output.datatype, output.array)
        outputs.append(described)
    document = _head(response)
    document["outputs"] = outputs
    return orjson.dumps(document, option=_NUMPY), pieces


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
