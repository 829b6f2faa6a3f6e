"""Header blocks to request heads: HPACK (RFC 7541), decoded once for each different block.

gRPC's clients send the same block again and again, once the dynamic table holds their fields: then the
bytes alone say which head it is. That is so until the table changes, which gives every index another
meaning.
"""

from __future__ import annotations

from hpack import Decoder
from hpack.exceptions import HPACKError, OversizedHeaderListError

from bident.doors.access import Api
from bident.doors.grpc import answer_heads
from bident.doors.grpc.call import Service, Status
from bident.doors.grpc.frames import BrokenRulesError, ErrorCode
from bident.doors.grpc.request_head import Refusal, RequestHead, malformed, read_head

_MOST_KNOWN = 64
_LONGEST_KNOWN = 4096
_HARD_FACTOR = 4
"""Metadata larger than allowed gets an answer up to this many times the limit; the connection ends beyond."""
_FIELD_OVERHEAD = 32
"""What HTTP/2 counts for a field beside its name and value."""


class HeaderBlocks:
    """The header blocks of one connection."""

    __slots__ = ("_decoder", "_limit", "_packs", "_service", "known")

    def __init__(self, service: Service, limit: int, *, packs: bool) -> None:
        """``limit`` is for the metadata of one request, in bytes as HTTP/2 counts them.

        ``packs`` says whether answers of inference are compressed for clients that take it.
        """
        self._packs = packs
        self._service = service
        self._limit = limit
        self._decoder = Decoder(max_header_list_size=_HARD_FACTOR * limit)
        self.known: dict[bytes, RequestHead] = {}
        """The heads that blocks stand for, as long as the dynamic table is what it is."""

    def read(self, block: bytes) -> RequestHead | str:
        """The head of the request that ``block`` begins, or why it is malformed."""
        is_same, fields = self._decode(block)
        if isinstance(fields, Refusal):
            head = RequestHead(b"", {})
            head.refusal = fields
            return head
        problem = malformed(fields, is_first=True)
        if problem:
            return problem
        head = read_head(fields, self._service)
        if not self._packs or head.api is not Api.INFERENCE:
            head.pack = None
        if is_same and len(block) <= _LONGEST_KNOWN:
            if len(self.known) >= _MOST_KNOWN:
                self.known.clear()
            self.known[block] = head
        return head

    def read_trailers(self, block: bytes) -> str:
        """Read what follows a request's last message, which says nothing to us; why it is malformed, or ""."""
        _, fields = self._decode(block)
        return "" if isinstance(fields, Refusal) else malformed(fields, is_first=False)

    def _decode(self, block: bytes) -> tuple[bool, list[tuple[bytes, bytes]] | Refusal]:
        """Whether the dynamic table is still what it was, and the fields of ``block``."""
        decoder = self._decoder
        table = decoder.header_table
        entries = table.dynamic_entries
        before = (len(entries), entries[0] if entries else None, table.maxsize)
        try:
            fields = [(bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True)]
        except OversizedHeaderListError:
            raise BrokenRulesError(ErrorCode.ENHANCE_YOUR_CALM, "the header list is far too large") from None
        except (HPACKError, IndexError, UnicodeError) as error:
            raise BrokenRulesError(ErrorCode.COMPRESSION_ERROR, f"the header block cannot be read: {error}") from None
        after = (len(entries), entries[0] if entries else None, table.maxsize)
        # An entry that has been added is another object, even where it says the same.
        is_same = before[0] == after[0] and before[1] is after[1] and before[2] == after[2]
        if not is_same:
            self.known.clear()
        size = sum(len(name) + len(value) + _FIELD_OVERHEAD for name, value in fields)
        if size > self._limit:
            return is_same, Refusal(
                answer_heads.trailers_only(
                    Status.RESOURCE_EXHAUSTED,
                    f"received metadata size exceeds the limit ({size} vs. {self._limit} bytes): send less metadata",
                )
            )
        return is_same, fields
