"""A ``ModelInferRequest`` to an InferRequest.

Clients ask the same question again and again, with other numbers: all that a message says before its raw
tensors (its *wording*) is read once, by protobuf, and remembered. The raw tensors are taken as they lie in
the message. Rules and words are Triton's (``infer_handler.cc``).
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from bident.doors.answers import Want
from bident.doors.declared_tensors import MAX_DIMS, MAX_ELEMENTS, MOST_ITEMS, bad_datatype, bad_shape
from bident.doors.grpc import typed_contents
from bident.doors.grpc.call import Buffer
from bident.doors.grpc.infer_parameters import PLAIN, Form, Options, Region, form_of, options, region_of
from bident.doors.grpc.messages import pb
from bident.doors.shared_tensors import SharedInput, bytes_to_read, read_inputs
from bident.engine.shared_memory import SharedMemory
from bident.errors import ServeError, invalid_arg
from bident.wire.datatypes import BYTES, DATATYPES, DataType
from bident.wire.infer import InferInput, InferRequest, element_count, is_addressable
from bident.wire.shown import shown
from bident.wire.tensor import unpack

_RAW_TAG = 0x3A
"""Field 7, ``raw_input_contents``."""
_WORDING_TAGS = frozenset(range(0x0A, _RAW_TAG, 8))
"""Fields 1 to 6; like field 7 they are all length-delimited, and of one byte."""
_VIEWED = 16 * 1024
"""Raw tensors of a larger message are views on it, smaller ones are copied."""
_REMEMBERED_BYTES = 2048
_MOST_REMEMBERED = 1024
_NEGATIVE = re.compile(r"-[0-9]{1,18}")
_VERSION = re.compile(r"0*[0-9]{1,18}")


Raw = bytes | memoryview
"""A raw tensor."""
Wanted = dict[str, Want]
"""By output: as so many best labels, or written to that window of shared memory."""


class _Input(NamedTuple):
    """One input as the wording has it. ``data`` is set for typed contents, ``region`` for shared memory."""

    name: str
    datatype: DataType
    shape: tuple[int, ...]
    elements: int
    data: Any = None
    region: Region | None = None


class Wording:
    """What a message says but for its raw tensors: first whom it asks, then (``read``) what.

    Raises INVALID_ARG where it cannot be meant.
    """

    __slots__ = (
        "_forms",
        "_head",
        "_inputs",
        "_options",
        "_outputs",
        "_proto",
        "_shared_bytes",
        "id",
        "model_name",
        "model_version",
    )

    def __init__(self, proto: Any, head: bytes | None = None) -> None:
        """``head``: the bytes of the message that ``proto`` was read from, if the rest are raw tensors."""
        self.model_name: str = proto.model_name
        self.model_version: str = proto.model_version
        """As the client has it; ``version`` is what it means."""
        self.id: str = proto.id
        self._outputs: list[str] | None = None
        self._forms: dict[str, Form] | None = None
        self._inputs: list[_Input] = []
        self._shared_bytes = 0
        self._options: Options | None = None
        self._proto = proto
        self._head = head

    @property
    def version(self) -> str:
        """The version that is asked; "" for the latest. Raises INVALID_ARG where the client's is no number."""
        return model_version(self.model_version)

    @property
    def is_read(self) -> bool:
        """Whether ``read`` has succeeded."""
        return self._proto is None

    @property
    def has_empty_final(self) -> bool:
        """Whether the end of a decoupled model's answers is wanted as an answer of its own."""
        return self._options is not None and self._options.empty_final

    @property
    def key(self) -> bytes | None:
        """How another message that is worded the same begins; None if there will hardly be any."""
        head = self._head
        if head is None or len(head) > _REMEMBERED_BYTES or self.id:
            return None
        return head if all(given.data is None for given in self._inputs) else None

    def is_long(self, raws: Sequence[Raw], limit: int) -> bool:
        """Whether reading takes long: more than ``limit`` bytes of elements, or of strings among the ``raws``.

        Raw numbers are taken as they lie.
        """
        if self._proto is None:
            has_strings = any(given.datatype is BYTES for given in self._inputs)
        elif self._proto.ByteSize() > limit:
            return True
        else:
            has_strings = any(given.datatype == "BYTES" for given in self._proto.inputs)
        return has_strings and sum(map(len, raws)) > limit

    def read(self, *, has_raws: bool) -> None:
        """Read and check the rest of it; ``has_raws``: whether there are raw tensors."""
        proto = self._proto
        if len(proto.inputs) > MOST_ITEMS or len(proto.outputs) > MOST_ITEMS:
            raise invalid_arg(f"a request has more than {MOST_ITEMS} inputs or outputs")
        if proto.parameters:
            self._options = options(proto.parameters)
        self._inputs = [_input(self.model_name, given, has_raws) for given in proto.inputs]
        self._shared_bytes = sum(given.region.byte_size for given in self._inputs if given.region is not None)
        if proto.outputs:
            self._outputs = list(dict.fromkeys(wanted.name for wanted in proto.outputs))
            forms = {wanted.name: form_of(wanted) for wanted in proto.outputs if wanted.parameters}
            self._forms = {name: form for name, form in forms.items() if form != PLAIN} or None
        self._proto = None

    @property
    def shared_bytes(self) -> int:
        """How many bytes of it, once it is read, lie in shared memory."""
        return self._shared_bytes

    def request(
        self, raws: Sequence[Raw], received_ns: int, memory: SharedMemory, declared: Container[str]
    ) -> InferRequest:
        """The question, with its raw tensors and those in ``memory`` that the model has (``declared``)."""
        inputs: dict[str, InferInput] = {}
        shared: list[SharedInput] = []
        raw = iter(raws)
        for name, datatype, shape, count, contents, region in self._inputs:
            if name in inputs:
                raise invalid_arg(f"input {shown(name)} already exists in request")
            if region is not None:
                tensor = inputs[name] = InferInput(name, datatype, shape, count, [])
                shared.append(SharedInput(tensor, memory.view(*region)))
            else:
                data = contents if contents is not None else unpack(name, datatype, shape, count, self._next(raw, raws))
                inputs[name] = InferInput(name, datatype, shape, count, data)
        if shared:
            bytes_to_read(shared)
            read_inputs(shared, declared)
        if next(raw, None) is not None:
            raise self._wrong_number(len(raws))
        request = InferRequest(self.model_name, self.version, self.id, inputs, received_ns)
        request.outputs = self._outputs
        if self._options is not None:
            self._options.apply(request)
        return request

    def wanted(self, memory: SharedMemory) -> Wanted | None:
        """The outputs that are not wanted as bytes in the answer; None if all are."""
        if self._forms is None:
            return None
        return {
            name: form.classes if form.region is None else memory.view(*form.region)
            for name, form in self._forms.items()
        }

    def _next(self, raw: Iterator[Raw], raws: Sequence[Raw]) -> Raw:
        try:
            return next(raw)
        except StopIteration:
            raise self._wrong_number(len(raws)) from None

    def _wrong_number(self, given: int) -> ServeError:
        raw = [each.name for each in self._inputs if each.data is None and each.region is None]
        if given < len(raw):
            return invalid_arg(
                f"unable to find data for input tensor {shown(raw[given])} for model {shown(self.model_name)} in "
                f"request: {len(raw)} of its inputs have neither contents nor shared memory, and raw_input_contents "
                f"has {given} entries"
            )
        return invalid_arg(
            f"expected {len(raw)} raw input contents but got {given} for model {shown(self.model_name)}: "
            "raw_input_contents has one entry for each input that is not in shared memory, in the order of the inputs"
        )


def _input(model: str, given: Any, has_raws: bool) -> _Input:
    name: str = given.name
    region = region_of(given) if given.parameters else None
    has_contents = given.HasField("contents")
    if has_contents and region is not None:
        raise invalid_arg(
            f"unexpected 'content' provided when using shared memory for input tensor {shown(name)} for model "
            f"{shown(model)}: it can come in one way only"
        )
    if has_contents and has_raws:
        raise invalid_arg(
            f"contents field must not be specified when using raw_input_contents for {shown(name)} for model "
            f"{shown(model)}: send all inputs in the one form or in the other"
        )
    datatype = DATATYPES.get(given.datatype)
    if datatype is None:
        raise bad_datatype(name, given.datatype)
    shape, count = _shape(model, name, given.shape)
    data = typed_contents.read(model, name, datatype, shape, count, given.contents) if has_contents else None
    return _Input(name, datatype, shape, count, data, region)


def _shape(model: str, name: str, dims: Any) -> tuple[tuple[int, ...], int]:
    """A shape and how many elements it has."""
    shape = tuple(dims)
    if len(shape) <= MAX_DIMS and shape and min(shape) < 0:
        raise invalid_arg(
            f"All input dimensions should be specified for input {shown(name)} for model {shown(model)}, got "
            f"{shown(list(shape))}: -1 stands in configurations for any size, a request says which"
        )
    if len(shape) > MAX_DIMS:
        raise bad_shape(name, list(shape))
    count = element_count(shape)
    if count > MAX_ELEMENTS or not is_addressable(shape):
        raise bad_shape(name, list(shape))
    return shape, count


def model_version(word: str) -> str:
    """The version that ``word`` of a message means; "" for the latest. Raises INVALID_ARG where it is no number."""
    if not word or word == "1":
        return word
    if _VERSION.fullmatch(word):
        return word.lstrip("0") or "0"
    if _NEGATIVE.fullmatch(word):
        what = f"invalid model version specified {shown(word)} "
    else:
        what = f"failed to get model version from specified version string {shown(word)} (details: stol)"
    raise invalid_arg(f"{what}, version should be an integral value > 0; leave it empty for the latest")


class Reader:
    """Reads messages, and remembers wordings."""

    def __init__(self) -> None:
        self._known: dict[bytes, Wording] = {}
        self._last_head = b""
        self._last: Wording | None = None
        """The wording that was used again last: that of most messages is the same."""

    def begin(self, message: Buffer) -> tuple[Wording, list[Raw]]:
        """The wording of ``message``, perhaps not ``read`` yet, and its raw tensors. Raises INVALID_ARG."""
        last = self._last
        if last is not None and type(message) is bytes and message.startswith(self._last_head):
            at = len(self._last_head)
            # One short raw tensor follows, and nothing else: most small questions are like that.
            if len(message) > at + 1 and message[at] == _RAW_TAG and message[at + 1] == len(message) - at - 2 < 128:
                return last, [message[at + 2 :]]
        parts = _split(message)
        if parts is None:
            proto = parse(pb.ModelInferRequest, message)
            return Wording(proto), list(proto.raw_input_contents)
        head, raws = parts
        wording = self._known.get(head)
        if wording is None:
            return Wording(parse(pb.ModelInferRequest, head), head), raws
        self._last_head, self._last = head, wording
        return wording, raws

    def remember(self, wording: Wording) -> None:
        """Keep ``wording``, which has been ``read``, for messages that begin as its own does."""
        key = wording.key
        if key is not None:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[key] = wording


def parse(kind: Any, message: Buffer) -> Any:
    """``message`` as one of ``kind``. Raises INVALID_ARG where it is none."""
    try:
        return kind.FromString(message if type(message) is bytes else bytes(message))
    except DecodeError:
        name = kind.DESCRIPTOR.full_name
        raise invalid_arg(
            f"Unable to parse request: its {len(message)} bytes are not the protobuf message {name}"
        ) from None


def _split(message: Buffer) -> tuple[bytes, list[Raw]] | None:
    """The fields before ``raw_input_contents``, and those; None where the fields are not in their usual order.

    Then, and where it is no message at all, protobuf has to look at the whole.
    """
    size = len(message)
    at = head_end = 0
    raws: list[Raw] = []
    data = message if size <= _VIEWED and type(message) is bytes else memoryview(message)
    try:
        while at < size:
            tag = message[at]
            length = message[at + 1]
            at += 2
            if length > 127:
                length, at = _long_length(message, at - 1)
            end = at + length
            if tag == _RAW_TAG:
                raws.append(data[at:end])
                if len(raws) > MOST_ITEMS:
                    return None
            elif raws or tag not in _WORDING_TAGS:
                return None
            else:
                head_end = end
            at = end
    except IndexError:
        return None
    return (bytes(message[:head_end]), raws) if at == size else None


def _long_length(message: Buffer, at: int) -> tuple[int, int]:
    """The number of several bytes that starts at ``at``, and where it ends. Raises IndexError where it does not."""
    length = 0
    for shift in range(0, 35, 7):
        byte = message[at]
        at += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            return length, at
    raise IndexError(at)
