"""Shared memory between the server and one worker.

Each direction has its *segments*: anonymous memory that the server makes and passes to the worker as a
descriptor, so that the kernel takes it back when both are gone, however they went. The writer owns
what lies in its segments: a message takes one *block*, the reader looks at the arrays in it in place
and says when nobody looks any more.
"""

from __future__ import annotations

import mmap
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any, Callable

import numpy as np

from .arrays import DamagedError

SEGMENT_SMALLEST = 1024 * 1024
KEPT_EMPTY = 64 * 1024 * 1024
SEGMENT_LIMIT = 512
_ALIGNMENT = 64


class Segment:
    """Shared memory as its writer sees it: blocks are laid one behind another until all have been read."""

    __slots__ = ("bytes", "id", "live", "memory", "size", "used")

    def __init__(self, segment_id: int, descriptor: int, size: int) -> None:
        """Maps ``descriptor``, which the caller closes."""
        self.id = segment_id
        self.size = size
        self.memory = mmap.mmap(descriptor, size)
        self.bytes = np.frombuffer(self.memory, np.uint8)
        self.used = 0
        self.live = 0


def segment_size(wanted: int) -> int:
    """The size of the segment to make for a block of ``wanted`` bytes: a power of two, or a multiple of 64 MiB."""
    size = SEGMENT_SMALLEST
    while size < wanted and size < KEPT_EMPTY:
        size *= 2
    return max(size, -(-wanted // KEPT_EMPTY) * KEPT_EMPTY) if size < wanted else size


class Blocks:
    """The writer's side: where the next block goes. Safe to use from several threads."""

    def __init__(self, obtain: Callable[[int], Segment], retire: Callable[[Segment], None]) -> None:
        """``obtain`` makes a segment of at least so many bytes; ``retire`` tells the reader that one is gone."""
        self._obtain = obtain
        self._retire = retire
        self._lock = threading.Lock()
        self._segments: list[Segment] = []
        self._live: dict[int, Segment] = {}
        self._last_id = 0

    @property
    def size(self) -> int:
        """How much memory the segments take."""
        with self._lock:
            return sum(segment.size for segment in self._segments)

    @property
    def unused(self) -> int:
        """How much of it nothing lies in."""
        with self._lock:
            return sum(segment.size - segment.used for segment in self._segments)

    @property
    def live(self) -> int:
        """How many blocks have not been read to the end."""
        return len(self._live)

    def take(self, size: int) -> tuple[list[int], Any]:
        """A block of ``size`` bytes: its description ``[id, segment, offset, size]`` and the bytes to write to."""
        with self._lock:
            found = self._place(size)
        if found is None:
            segment = self._obtain(size)
            with self._lock:
                self._segments.append(segment)
                found = self._lay(segment, size)
        return found

    def free(self, block_ids: Sequence[Any]) -> None:
        """Blocks have been read. Raises DamagedError when there is no such block."""
        dropped: list[Segment] = []
        with self._lock:
            for block_id in block_ids:
                segment = self._live.pop(block_id, None)
                if segment is None:
                    raise DamagedError(f"there is no block {block_id}")
                segment.live -= 1
                if segment.live == 0:
                    segment.used = 0
                    dropped.extend(self._excess())
        for segment in dropped:
            self._retire(segment)

    def trim(self) -> None:
        """Give back every segment that nothing lies in."""
        with self._lock:
            empty = [segment for segment in self._segments if not segment.live]
            self._segments = [segment for segment in self._segments if segment.live]
        for segment in empty:
            self._retire(segment)

    def _place(self, size: int) -> tuple[list[int], Any] | None:
        best: Segment | None = None
        for segment in self._segments:
            # An empty segment much larger than the block is left for a block that needs it.
            room = segment.size - segment.used
            if size <= room and (best is None or segment.size < best.size):
                best = segment
        return None if best is None else self._lay(best, size)

    def _lay(self, segment: Segment, size: int) -> tuple[list[int], Any]:
        offset = segment.used
        segment.used = offset + size + -size % _ALIGNMENT
        segment.live += 1
        self._last_id += 1
        self._live[self._last_id] = segment
        return [self._last_id, segment.id, offset, size], segment.bytes[offset : offset + size]

    def _excess(self) -> list[Segment]:
        """Takes out the empty segments beyond what is worth keeping, the smallest first: large ones serve all."""
        empty = sorted((s for s in self._segments if not s.live), key=lambda segment: segment.size)
        total = sum(segment.size for segment in empty)
        dropped: list[Segment] = []
        for segment in empty[:-1]:
            if total <= KEPT_EMPTY:
                break
            total -= segment.size
            dropped.append(segment)
            self._segments.remove(segment)
        return dropped


class _Watch(weakref.ref):  # type: ignore[type-arg]
    __slots__ = ("block_id",)
    block_id: int


class Views:
    """The reader's side: looks at blocks in place, and remembers those that nobody looks at any more."""

    def __init__(self, access: int = mmap.ACCESS_WRITE) -> None:
        self._access = access
        self._segments: dict[int, mmap.mmap] = {}
        self._watched: dict[int, _Watch] = {}
        self._freed: deque[int] = deque()

    @property
    def watched(self) -> int:
        """How many blocks are being looked at."""
        return len(self._watched)

    def attach(self, segment_id: int, descriptor: int, size: int) -> None:
        """Map a segment of the writer; the caller closes ``descriptor``."""
        self._segments[segment_id] = mmap.mmap(descriptor, size, access=self._access)

    def detach(self, segment_id: Any) -> None:
        """Forget a segment. Arrays that still look at it keep it alive."""
        if self._segments.pop(segment_id, None) is None:
            raise DamagedError(f"there is no segment {segment_id}")

    def look(self, block: Any) -> Any:
        """The bytes of ``block``, as long as they or any array made from them are kept. Raises DamagedError."""
        try:
            block_id, segment_id, offset, size = block
            memory = self._segments[segment_id]
        except (TypeError, ValueError, KeyError) as error:
            raise DamagedError(f"a block's description makes no sense: {error!r}") from error
        if not all(type(number) is int for number in (block_id, offset, size)):
            raise DamagedError("a block's description makes no sense")
        if offset < 0 or size <= 0 or offset + size > len(memory):
            raise DamagedError(f"block {block_id} lies outside of its segment")
        # Made straight from the mapping: numpy would skip an array in between, and never tell of its end.
        view = np.frombuffer(memory, np.uint8, size, offset)
        watch = _Watch(view, self._unwatch)
        watch.block_id = block_id
        self._watched[id(watch)] = watch
        return view

    @property
    def has_freed(self) -> bool:
        """Whether there is anything for ``take_freed``."""
        return bool(self._freed)

    @property
    def freed_count(self) -> int:
        """How many blocks ``take_freed`` would name."""
        return len(self._freed)

    def take_freed(self) -> list[int]:
        """The blocks that nobody looks at any more, each told once."""
        freed = self._freed
        taken: list[int] = []
        while freed:
            taken.append(freed.popleft())
        return taken

    def _unwatch(self, watch: Any) -> None:
        # Runs wherever the last array dies, in any thread, in the middle of anything: no locks here.
        self._freed.append(watch.block_id)
        self._watched.pop(id(watch), None)
