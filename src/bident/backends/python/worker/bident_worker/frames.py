"""Messages as bytes: a fixed prefix, a JSON header, a payload; and file descriptors beside them.

    prefix   u16 magic, u8 kind, u8 descriptors, u32 header size, u32 payload size (little-endian)
    header   a JSON object
    payload  the bytes of small arrays

Every header may carry ``free``, the shared blocks that the sender of the message has done reading, and
``retired``, the segments that it no longer writes to.
"""

from __future__ import annotations

import socket
import struct
from typing import Any, Callable

from . import forms

PREFIX = struct.Struct("<HBBII")
MAGIC = 0xB1DE
HEADER_LIMIT = 32 * 1024 * 1024
PAYLOAD_LIMIT = 1024 * 1024
DESCRIPTOR_LIMIT = 4
_READ_SIZE = 256 * 1024


class Kind:
    """What a message is about. The server sends the first group, the worker the second."""

    START = 1
    """Read the model and initialise it: what the model is told, and what to do."""
    BATCH = 2
    CANCEL = 3
    ANSWER = 4
    """The answer to a CALL of the worker."""
    INFER_ANSWER = 5
    """One response to an INFER of the worker."""
    SEGMENT = 6
    """Shared memory, with its descriptor: for the worker to read from, or to write into."""
    FREE = 8
    """Blocks have been read (both directions); nothing else."""
    ASK_READY = 9
    FINALIZE = 10
    FORM = 11
    """What PLAIN messages look like (both directions)."""
    PLAIN = 12
    """A BATCH, or the RESPONSES to one, of a form (see ``forms``)."""

    STARTED = 32
    """The answer to START."""
    RESPONSES = 33
    """What became of requests of a batch."""
    DONE = 34
    """A batch has left ``execute``."""
    INFER = 35
    """A request of the model to another model."""
    CALL = 36
    """Anything else that the model wants of the server and waits for."""
    LOG = 37
    METRIC = 38
    """A change of a metric, which nobody waits for."""
    READY = 39
    FINALIZED = 40
    DROP = 41
    """The worker has lost interest in the answers to an INFER."""


def prefix(kind: int, header_size: int, payload_size: int, descriptors: int = 0) -> bytes:
    """The first bytes of a message. Raises ValueError when it is too large to be carried."""
    if header_size > HEADER_LIMIT or payload_size > PAYLOAD_LIMIT:
        raise ValueError(f"a message of {header_size} + {payload_size} bytes cannot be carried")
    return PREFIX.pack(MAGIC, kind, descriptors, header_size, payload_size)


class Frame:
    """One message: its kind, its header, the bytes of its small arrays and the block of its large ones."""

    __slots__ = ("block", "descriptors", "header", "kind", "payload")

    def __init__(self, kind: int, header: Any, payload: bytearray, descriptors: list[int]) -> None:
        self.block: Any = None
        self.kind = kind
        self.header = header
        self.payload = payload
        self.descriptors = descriptors


class BrokenChannelError(Exception):
    """What arrived cannot have been sent by a sound process."""


class Reader:
    """Takes bytes and descriptors off a socket and gives messages."""

    def __init__(self, channel: socket.socket, parse: Callable[[Any], Any]) -> None:
        """``parse`` turns a header's bytes into an object; it may raise ValueError."""
        self._channel = channel
        self._parse = parse
        self._buffer = bytearray(_READ_SIZE)
        self._begin = 0
        self._end = 0
        self._descriptors: list[int] = []
        self.more = False
        """Whether the last ``read`` took all that it had place for, so that there may be more to read."""

    def read(self, flags: int = 0) -> list[Frame] | None:
        """Receive once. Returns the messages that are now complete, None at the channel's end.

        Raises BlockingIOError when there is nothing and the socket or ``flags`` do not let it wait,
        BrokenChannelError when the bytes are no message, or descriptors came that none announces.
        """
        self._make_room()
        place = memoryview(self._buffer)[self._end :]
        count, ancillary, _, _ = self._channel.recvmsg_into([place], socket.CMSG_SPACE(4 * DESCRIPTOR_LIMIT), flags)
        self.more = count == len(place)
        place.release()
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self._descriptors.extend(struct.unpack(f"={len(data) // 4}i", data[: len(data) // 4 * 4]))
        if count == 0:
            return None
        self._end += count
        frames: list[Frame] = []
        try:
            while (frame := self._next()) is not None:
                frames.append(frame)
            if self._descriptors and len(self._descriptors) > self._descriptors_to_come():
                raise BrokenChannelError("descriptors came that no message announces")
        except BrokenChannelError:
            for frame in frames:  # nobody gets them now
                self._descriptors += frame.descriptors
            raise
        return frames

    def take_descriptors(self) -> list[int]:
        """Descriptors that belong to no message yet, for closing."""
        taken, self._descriptors = self._descriptors, []
        return taken

    def _descriptors_to_come(self) -> int:
        """How many descriptors the message under way may have brought already."""
        if self._end == self._begin:
            return 0
        if self._end - self._begin < PREFIX.size:
            return DESCRIPTOR_LIMIT
        announced: int = PREFIX.unpack_from(self._buffer, self._begin)[2]
        return announced

    def _next(self) -> Frame | None:
        begin = self._begin
        if self._end - begin < PREFIX.size:
            return None
        magic, kind, descriptors, header_size, payload_size = PREFIX.unpack_from(self._buffer, begin)
        sizes_fit = header_size <= HEADER_LIMIT and payload_size <= PAYLOAD_LIMIT
        if magic != MAGIC or not sizes_fit or descriptors > DESCRIPTOR_LIMIT:
            raise BrokenChannelError("a message begins with nonsense")
        start = begin + PREFIX.size
        stop = start + header_size + payload_size
        if self._end < stop:
            return None
        if descriptors > len(self._descriptors):
            raise BrokenChannelError("a message came without the descriptors that it announces")
        middle = start + header_size
        header = self._header(kind, self._buffer[start:middle])
        payload = self._buffer[middle:stop]
        self._begin = stop
        taken, self._descriptors = self._descriptors[:descriptors], self._descriptors[descriptors:]
        return Frame(kind, header, payload, taken)

    def _header(self, kind: int, data: bytearray) -> dict[str, Any]:
        try:
            if kind == Kind.PLAIN:
                return dict(zip(forms.FIELDS, forms.HEADER.unpack(data)))
            header = self._parse(data)
        except (ValueError, struct.error) as error:
            raise BrokenChannelError(f"a message's header makes no sense: {error}") from error
        if not isinstance(header, dict):
            raise BrokenChannelError("a message's header is no object")
        return header

    def _make_room(self) -> None:
        """See to it that there is place behind what has arrived, and enough of it for the message under way."""
        waiting = self._end - self._begin
        if waiting == 0:
            self._begin = self._end = 0
            if len(self._buffer) > _READ_SIZE:
                self._buffer = bytearray(_READ_SIZE)
            return
        wanted = _READ_SIZE
        if waiting >= PREFIX.size:
            _, _, _, header_size, payload_size = PREFIX.unpack_from(self._buffer, self._begin)
            # Twice what has come, at most: a size that lies cannot make us allocate.
            wanted = max(wanted, min(PREFIX.size + header_size + payload_size, 2 * waiting + _READ_SIZE))
        if wanted > len(self._buffer):
            self._buffer = self._buffer[self._begin : self._end] + bytearray(wanted - waiting)
        elif len(self._buffer) - self._end < _READ_SIZE // 4 or self._begin + wanted > len(self._buffer):
            self._buffer[:waiting] = self._buffer[self._begin : self._end]
        else:
            return
        self._begin, self._end = 0, waiting
