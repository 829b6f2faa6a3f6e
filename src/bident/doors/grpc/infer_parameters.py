"""The parameters of a ``ModelInferRequest``, of its inputs and of its outputs. Rules and words are Triton's."""

from __future__ import annotations

from typing import Any, NamedTuple

from bident.errors import ServeError, invalid_arg
from bident.wire.infer import RESERVED_PREFIX, InferRequest
from bident.wire.shown import shown

_EMPTY_FINAL = "triton_enable_empty_final_response"
_CUSTOM = ("int64_param", "bool_param", "string_param", "double_param")
_CUSTOM_WORDS = "int64_param, bool_param, or string_param"
"""What Triton says it expects; it takes a double too."""
_MOST_CUSTOM = 4096
_WORDS = {"priority", "timeout", "sequence_id", "sequence_start", "sequence_end", _EMPTY_FINAL}


class Region(NamedTuple):
    """Where in a registered shared memory region a tensor lies; what ``SharedMemory.view`` takes."""

    name: str
    offset: int
    byte_size: int


class Form(NamedTuple):
    """How the client wants one output: as its ``classes`` best labels if > 0, or written to a ``region``."""

    classes: int = 0
    region: Region | None = None


PLAIN = Form()
"""As bytes in the answer."""


class Options(NamedTuple):
    """The parameters of a request."""

    priority: int = 0
    timeout_us: int = 0
    sequence_id: int | str = 0
    sequence_start: bool = False
    sequence_end: bool = False
    empty_final: bool = False
    custom: dict[str, Any] | None = None

    def apply(self, request: InferRequest) -> None:
        """Set them on ``request``."""
        request.priority = self.priority
        request.timeout_us = self.timeout_us
        request.sequence_id = self.sequence_id
        request.sequence_start = self.sequence_start
        request.sequence_end = self.sequence_end
        if self.custom:
            request.parameters = dict(self.custom)


def options(parameters: Any) -> Options:
    """The parameters of a request. Raises INVALID_ARG for values of the wrong type, and for reserved keys."""
    if len(parameters) > _MOST_CUSTOM:
        raise invalid_arg(f"a request has more than {_MOST_CUSTOM} parameters")
    priority = _value(parameters, "priority", "int64_param", "uint64_param") or 0
    timeout_us = _value(parameters, "timeout", "int64_param") or 0
    for key, number in (("priority", priority), ("timeout", timeout_us)):
        if number < 0:
            raise invalid_arg(f"invalid value for '{key}', expected value >= 0, got {number}")
    sequence_id = _value(parameters, "sequence_id", "int64_param", "string_param") or 0
    if type(sequence_id) is int:
        sequence_id %= 1 << 64  # as Triton takes it, whose own are unsigned
    return Options(
        priority,
        timeout_us,
        sequence_id,
        bool(_value(parameters, "sequence_start", "bool_param")),
        bool(_value(parameters, "sequence_end", "bool_param")),
        bool(_value(parameters, _EMPTY_FINAL, "bool_param")),
        _custom(parameters),
    )


def _custom(parameters: Any) -> dict[str, Any]:
    """The parameters that are for the model."""
    custom: dict[str, Any] = {}
    for key in sorted(parameters):
        if key in _WORDS:
            continue
        if key.startswith(RESERVED_PREFIX):
            raise invalid_arg(
                f"parameter keys starting with '{RESERVED_PREFIX}' are reserved for Triton usage. Only the following "
                f"keys starting with '{RESERVED_PREFIX}' are allowed: {_EMPTY_FINAL}; rename {shown(key)}"
            )
        custom[key] = _value(parameters, key, *_CUSTOM, expected=_CUSTOM_WORDS)
    return custom


def _value(parameters: Any, key: str, *kinds: str, of: str = "", expected: str = "") -> Any:
    """The value of the parameter ``key``, None if there is none. Raises INVALID_ARG unless it is of these ``kinds``."""
    if key not in parameters:
        return None
    parameter = parameters[key]
    kind = parameter.WhichOneof("parameter_choice")
    if kind not in kinds:
        expected = expected or " or ".join(kinds)
        raise invalid_arg(
            f"invalid value type for {shown(key)} parameter{of}, expected {expected}; got {kind or 'nothing'}"
        )
    return getattr(parameter, kind)


def region_of(tensor: Any) -> Region | None:
    """The shared memory region that the parameters of an input or output name, if any."""
    parameters = tensor.parameters
    of = f" for tensor {shown(tensor.name)}"
    name = _value(parameters, "shared_memory_region", "string_param", of=of)
    offset = _value(parameters, "shared_memory_offset", "int64_param", of=of)
    byte_size = _value(parameters, "shared_memory_byte_size", "int64_param", of=of)
    if name is None:
        for key, value in (("shared_memory_offset", offset), ("shared_memory_byte_size", byte_size)):
            if value is not None:
                raise invalid_arg(f"'{key}' can not be specified without 'shared_memory_region' parameter{of}")
        return None
    if byte_size is None:
        raise invalid_arg(
            f"'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter{of}"
        )
    return Region(name, offset or 0, byte_size)


def form_of(output: Any) -> Form:
    """How the parameters of a requested output want it."""
    region = region_of(output)
    classes = _value(output.parameters, "classification", "int64_param")
    if classes is None:
        return Form(0, region)
    if classes < 1:
        raise _bad_classes(output.name, classes)
    if region is not None:
        raise invalid_arg(
            f"output can't set both 'shared_memory_region' and 'classification': output {shown(output.name)}"
        )
    return Form(classes)


def _bad_classes(name: str, classes: int) -> ServeError:
    # Triton says ">= 0" and takes no 0; its clients may match on that.
    return invalid_arg(
        f"invalid value for 'classification' parameter, expected >= 0: output {shown(name)} has {classes}, and no "
        "class is not a classification"
    )
