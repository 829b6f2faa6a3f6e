"""``pb_utils.InferenceResponse``, and how responses travel."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from .errors import ErrorCode, TritonError, TritonModelException, bounded
from .tensor import Tensor, made


def checked_parameters(parameters: Any) -> dict[str, Any] | None:
    """``parameters``, None if there are none. Raises TritonModelException on what protocols cannot carry."""
    if parameters is None or parameters == {}:
        return None
    if not isinstance(parameters, dict):
        raise TritonModelException(f"Expect parameters to have type dict, found type {type(parameters)}")
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise TritonModelException(f"Expect parameters keys to have type str, found type {type(key)}")
        if not isinstance(value, (bool, int, str)):
            raise TritonModelException(f"Expect parameters values to have type bool/int/str, found type {type(value)}")
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
            raise TritonModelException(f"Expect parameters values to fit 64 bits, found {value} for '{key}'")
    return dict(parameters)


def listed(what: str, tensors: Any) -> list[Any]:
    """``tensors``, the argument ``what``, as a list. Raises TypeError if it is no collection."""
    if isinstance(tensors, Tensor) or not isinstance(tensors, Iterable):
        found = "a Tensor: write [tensor]" if isinstance(tensors, Tensor) else str(type(tensors))
        raise TypeError(f"{what} takes a list of pb_utils.Tensor, found {found}")
    return list(tensors)


class InferenceResponse:
    """The answer to one request: output tensors or an error."""

    __slots__ = ("_error", "_parameters", "_tensors")

    def __init__(
        self, output_tensors: Sequence[Tensor] = (), error: TritonError | None = None, parameters: Any = None
    ) -> None:
        tensors = output_tensors if type(output_tensors) is list else listed("output_tensors", output_tensors)
        for tensor in tensors:
            if type(tensor) is not Tensor and not isinstance(tensor, Tensor):
                if tensor is None:
                    raise TritonModelException("Output tensor for inference response should not be empty.")
                raise TypeError(f"InferenceResponse takes a list of pb_utils.Tensor, found {type(tensor)} in it")
        if error is not None and not isinstance(error, TritonError):
            raise TypeError(f"InferenceResponse takes an error of type pb_utils.TritonError, found {type(error)}")
        self._tensors = tensors
        self._error = error
        self._parameters = None if parameters is None else checked_parameters(parameters)

    def output_tensors(self) -> list[Tensor]:
        """The output tensors."""
        return self._tensors

    def has_error(self) -> bool:
        """Whether the request failed."""
        return self._error is not None

    def error(self) -> TritonError | None:
        """Why the request failed, None if it did not."""
        return self._error

    def parameters(self) -> str:
        """The response parameters, as JSON."""
        return json.dumps(self._parameters or {}, ensure_ascii=False)


def describe(response: InferenceResponse, wanted: Any, parcel: Any) -> dict[str, Any]:
    """What a header says of ``response``; its tensors named in ``wanted`` (None: all) go on board of ``parcel``."""
    said: dict[str, Any] = {}
    if response._parameters:
        said["parameters"] = response._parameters
    if response._error is not None:
        said["error"] = [response._error.code().value, bounded(response._error.message())]
        return said
    tensors = response._tensors
    if wanted is not None:
        # One that lacks what is wanted goes as it is: the server can say then what there was instead.
        chosen = [tensor for tensor in tensors if tensor._name in wanted]
        tensors = chosen if len(chosen) >= len(wanted) else tensors
    said["outputs"] = [
        parcel.add(tensor._name, tensor._datatype, (tensor._array,), tensor._array.shape) for tensor in tensors
    ]
    return said


class Together:
    """Responses that can be laid one behind the other, as ``columns`` of arrays; each has its ``rows``."""

    __slots__ = ("columns", "kinds", "rows")

    def __init__(self, kinds: list[Any], columns: list[list[Any]], rows: list[int]) -> None:
        """``kinds``: name, datatype and shape of one row of each column."""
        self.kinds = kinds
        self.columns = columns
        self.rows = rows

    def describe(self, parcel: Any) -> dict[str, Any]:
        """What a header says of them; their tensors go on board of ``parcel``."""
        rows = self.rows
        total = sum(rows)
        described = [
            parcel.add(name, datatype, column, (total, *tail))
            for column, (name, datatype, tail) in zip(self.columns, self.kinds)
        ]
        return {"columns": described, "rows": rows if rows.count(rows[0]) < len(rows) else rows[0]}


def joined(responses: Sequence[InferenceResponse], wanted: Any) -> Together | None:
    """``responses`` laid one behind the other, only the outputs ``wanted`` (None: all); None if they cannot be.

    They can with no errors, no parameters, the same tensors in all, alike but for the first dimension,
    which is the same for all tensors of one response.
    """
    first = responses[0]
    for response in responses:
        if type(response) is not InferenceResponse or response._error is not None or response._parameters:
            return None
    kinds = [(tensor._name, tensor._datatype, tensor._array.shape[1:]) for tensor in first._tensors]
    if not kinds or not all(tensor._array.shape for tensor in first._tensors):
        return None
    columns: list[list[Any]] = [[] for _ in kinds]
    rows: list[int] = []
    for response in responses:
        count = _laid(response._tensors, kinds, columns)
        if count is None:
            return None
        rows.append(count)
    # Those that lack what is wanted go as they are, as in ``describe``.
    if wanted is not None and sum(kind[0] in wanted for kind in kinds) >= len(wanted):
        columns = [column for column, kind in zip(columns, kinds) if kind[0] in wanted]
        kinds = [kind for kind in kinds if kind[0] in wanted]
    return Together(kinds, columns, rows)


def _laid(tensors: Sequence[Tensor], kinds: Sequence[Any], columns: list[list[Any]]) -> int | None:
    """Put each tensor's array into its column; returns its rows. None when they are not of these ``kinds``."""
    if len(tensors) != len(kinds):
        return None
    count = -1
    for tensor, column, (name, datatype, tail) in zip(tensors, columns, kinds):
        array = tensor._array
        shape = array.shape
        if not shape or shape[1:] != tail or tensor._name != name or tensor._datatype != datatype:
            return None
        if count not in (-1, shape[0]):
            return None
        count = shape[0]
        column.append(array)
    return count


def received(header: dict[str, Any], arrays: Sequence[Any]) -> InferenceResponse:
    """The response that another model gave."""
    response = InferenceResponse.__new__(InferenceResponse)
    error = header.get("error")
    response._error = None if error is None else TritonError(error[1], ErrorCode(error[0]))
    response._parameters = header.get("parameters")
    response._tensors = [made(d[0], array, d[1]) for d, array in zip(header.get("outputs", ()), arrays)]
    return response
