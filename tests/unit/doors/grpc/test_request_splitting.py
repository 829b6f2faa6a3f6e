"""Requests are split by hand before protobuf sees them: never is more taken than protobuf takes, nor something else."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.message import DecodeError

from bident.doors.grpc.infer_request import Reader, _split
from bident.doors.grpc.infer_response import varint
from bident.doors.grpc.messages import pb
from bident.errors import ServeError

_MESSAGES = 30_000
_RAW = pb.ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER
_ENDS = [
    b"\x08\x01",  # field 1 as a number
    b"\x0b\x0c",  # a group, empty
    b"\x0b",  # one that does not end
    b"\x0c",  # the end of none
    b"\x3b\x3c",  # field 7 as a group
    b"\x3d\1\2\3\4",  # as four bytes
    b"\x39" + bytes(8),
    b"\x38\x05",
    b"\x3e\0",  # wire types that there are not
    b"\x3f\0",
    b"\0\0",  # field 0
    b"\x3a",  # cut short
    b"\x3a\x80",
    b"\x3a\x01",
    b"\x3a\xff\xff\xff\xff\x0f",  # lengths that are none
    b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x3a\x80\x80\x80\x80\x10",
    b"\x3a\x80\x80\x80\x80\x00",  # 0, in five bytes
    b"\x3a\x80\x80\x80\x80\x80\x00",  # and in six
    b"\xba\x00\x01a",  # a tag in two bytes
    b"\x0a\x02\xff\xfe",  # no UTF-8
    b"\x0a\x01m",  # a field once more, after the raw tensors
    b"\x42\x01x",  # one that there is not
]


class Chance(random.Random):
    """Makes messages and what is wrong with them."""

    def message(self) -> bytes:
        request = pb.ModelInferRequest(
            model_name=self.choice(["m", "é", ""]),
            model_version=self.choice(["", "1"]),
            id=self.choice(["", "i" * 130]),
        )
        if self.random() < 0.5:
            request.parameters["a"].int64_param = self.randrange(9)
        for index in range(self.randrange(3)):
            shape = [self.randrange(300) for _ in range(self.randrange(3))]
            given = request.inputs.add(name=f"X{index}", datatype=self.choice(["FP32", "BYTES"]), shape=shape)
            if self.random() < 0.3:
                given.contents.fp32_contents.extend([1, 2])
        for _ in range(self.randrange(2)):
            request.outputs.add(name="Y")
        for _ in range(self.randrange(4)):
            request.raw_input_contents.append(self.randbytes(self.choice([0, 1, 4, 127, 128, 300])))
        text: bytes = request.SerializeToString()
        return text

    def reordered(self, message: bytes) -> bytes:
        """Its fields in another order, twice, or with others in between; numbers in more bytes than they need."""
        fields = list(fields_of(message))
        kind = self.randrange(4)
        if kind == 0:
            self.shuffle(fields)
        elif kind == 1 and fields:
            fields.insert(self.randrange(len(fields) + 1), self.choice(fields))
        elif kind == 2:
            fields.insert(self.randrange(len(fields) + 1), (self.choice([0x42, 0x7A]), self.randbytes(3)))
        return b"".join(
            overlong(tag, self.choice([0] * 9 + [1, 4]))
            + overlong(len(content), self.choice([0] * 6 + [1, 2, 3, 4, 5, 9]))
            + content
            for tag, content in fields
        )

    def damaged(self, message: bytes) -> bytes:
        data = bytearray(message)
        for _ in range(self.choice([1, 1, 2, 3])):
            at = self.randrange(len(data) + 1)
            kind = self.randrange(4)
            if kind == 0 and at < len(data):
                data[at] ^= 1 << self.randrange(8)
            elif kind == 1:
                data[at : at + 1] = self.choice([b"\x0a", b"\x3a", b"\x80", b"\xff", b"\0", b"\x42", b"\x0b"])
            elif kind == 2:
                del data[at : at + self.choice([1, 2, 5])]
            else:
                data[at:at] = self.randbytes(self.choice([1, 2, 4]))
        return bytes(data)

    def anything(self) -> bytes:
        message = self.message()
        for change in self.sample([self.reordered, self.damaged, lambda text: text + self.choice(_ENDS)], 3):
            if self.random() < 0.5:
                try:
                    message = change(message)
                except IndexError:  # damaged before it could be reordered
                    break
        return message


def fields_of(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Tags and contents of a message whose fields are all length-delimited."""
    at = 0
    while at < len(message):
        tag = message[at]
        size = shift = 0
        while True:
            at += 1
            size |= (message[at] & 0x7F) << shift
            shift += 7
            if message[at] < 0x80:
                break
        yield tag, message[at + 1 : at + 1 + size]
        at += 1 + size


def overlong(number: int, more: int) -> bytes:
    """``number`` in so many bytes ``more`` than it needs."""
    digits = bytearray(varint(number))
    for _ in range(more):
        digits[-1] |= 0x80
        digits.append(0)
    return bytes(digits)


def as_protobuf_reads(message: bytes) -> tuple[bytes, list[bytes]] | None:
    """The wording and the raw tensors; None where it is no message."""
    try:
        proto = pb.ModelInferRequest.FromString(message)
    except DecodeError:
        return None
    raws = list(proto.raw_input_contents)
    proto.ClearField("raw_input_contents")
    return proto.SerializeToString(deterministic=True), raws


def as_we_read(message: Any) -> tuple[bytes, list[bytes]] | None:
    try:
        wording, raws = Reader().begin(message)
    except ServeError:
        return None
    proto = pb.ModelInferRequest()
    proto.CopyFrom(wording._proto)
    proto.ClearField("raw_input_contents")
    return proto.SerializeToString(deterministic=True), [bytes(raw) for raw in raws]


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_messages_of_all_kinds(kind: type) -> None:
    chance = Chance(7)
    split = refused = 0
    for _ in range(_MESSAGES // 2):
        message = chance.anything()
        expected = as_protobuf_reads(message)
        assert as_we_read(kind(message)) == expected, message.hex()
        split += _split(message) is not None
        refused += expected is None
    # The run has met what it was made for.
    assert split > _MESSAGES // 12
    assert refused > _MESSAGES // 16


@pytest.mark.parametrize("end", _ENDS)
@pytest.mark.parametrize("raws", [0, 2])
def test_ends_of_all_kinds(end: bytes, raws: int) -> None:
    request = pb.ModelInferRequest(model_name="m", raw_input_contents=[b"abcd"] * raws)
    message = request.SerializeToString() + end
    assert as_we_read(message) == as_protobuf_reads(message)


def test_a_large_message() -> None:
    """Its raw tensors are views."""
    request = pb.ModelInferRequest(model_name="m", raw_input_contents=[b"a" * 40_000, b"", b"b" * 3])
    message = bytearray(request.SerializeToString())
    assert as_we_read(message) == as_protobuf_reads(bytes(message))
    assert as_we_read(message[:-1]) is as_protobuf_reads(bytes(message[:-1])) is None
    assert _RAW == 7


def test_wordings_are_remembered_by_every_byte() -> None:
    """Messages read one after the other mean what each of them means alone."""
    chance = Chance(11)
    reader = Reader()
    messages = [chance.anything() for _ in range(2000)]
    # The second time a wording is known, the third time it is the last one's.
    for message in [each for each in messages for _ in range(3)]:
        try:
            wording, raws = reader.begin(message)
            if not wording.is_read:
                wording.read(has_raws=bool(raws))
                reader.remember(wording)
        except ServeError:
            continue
        alone, alone_raws = Reader().begin(message)
        alone.read(has_raws=bool(alone_raws))
        assert raws == alone_raws
        for part in ("model_name", "model_version", "id", "_inputs", "_outputs", "_options", "_forms"):
            mine, theirs = getattr(wording, part), getattr(alone, part)
            assert repr(mine) == repr(theirs), message.hex()
