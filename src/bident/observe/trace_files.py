"""Writes complete traces to files, on a thread of its own: the event loop never waits for a disk.

A file is a JSON array between any two traces: what is added goes in front of its closing bracket. As in Triton, traces
go to ``<file>``, or to ``<file>.0``, ``<file>.1`` and so on if there is a limit to how many belong together.
"""

from __future__ import annotations

import errno
import logging
import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from io import FileIO
from pathlib import Path

from bident.observe.trace_settings import TraceSetting
from bident.observe.trace_text import text
from bident.wire.trace import TensorSeen, Trace
from bident.wire.trace_context import TraceContext

logger = logging.getLogger("bident.trace")

_MOST_WAITING = 10_000
_MOST_WAITING_BYTES = 64 * 1024 * 1024
"""So much may wait for the disk; what comes on top is dropped."""


_NO_FILE = "it is no regular file"


def obstacle(file: str) -> str:
    """Why nothing could be written to ``file``, as far as that shows without trying; empty if nothing shows."""
    folder = Path(file).parent
    if not folder.is_dir():
        return "its folder does not exist"
    if not os.access(folder, os.W_OK):
        return "its folder is not writable"
    return _NO_FILE if _is_no_file(Path(file)) else ""


def _is_no_file(path: Path) -> bool:
    return path.exists() and not path.is_file()


class TraceFiles:
    """All files of one server. ``put`` and ``close`` belong to the event loop, everything behind them to the thread."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._next_index = 0
        self._parts = 0
        self._whole = _Array(Path(file))
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._waiting = 0
        self._waiting_bytes = 0
        self._dropped = 0
        self._is_broken = False

    def outlet(self, setting: TraceSetting) -> Spool:
        """A place for the traces picked by ``setting``."""
        return Spool(self, setting.log_frequency, numbered=setting.count >= 0)

    def put(self, spool: Spool, root: Trace, *, last: bool) -> None:
        """Have ``root`` written to ``spool``; ``last``: it completes those that its setting asks for."""
        size = _size(root)
        spool.is_begun = True
        with self._lock:
            if self._waiting and (self._waiting >= _MOST_WAITING or self._waiting_bytes + size > _MOST_WAITING_BYTES):
                self._dropped += 1
                is_first = self._dropped == 1
                is_room = False
            else:
                self._waiting += 1
                self._waiting_bytes += size
                is_room = True
        if is_room:
            self.do(partial(self._write, spool, root, size))
        elif is_first:
            logger.warning("traces come faster than they can be written to %s: some are dropped", self._file)
        if last:
            self.do(spool.roll)

    def do(self, step: Callable[[], None]) -> None:
        """Have the thread take ``step`` after what it has to do already."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="bident traces", daemon=True)
            self._thread.start()
        self._work.put(step)

    def close(self, seconds: float) -> None:
        """Have everything written, for at most ``seconds``. Blocks."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join(seconds)
            self._thread = None
        if self._dropped:
            logger.warning("%d traces were dropped: they came faster than they could be written", self._dropped)

    # On the thread

    def _serve(self) -> None:
        while (step := self._work.get()) is not None:
            try:
                step()
                self._is_broken = False
            except OSError as error:
                if not self._is_broken:  # or each request would fill the log
                    logger.error("traces cannot be written to %s: %s", self._file, error.strerror)
                self._is_broken = True
            except Exception:
                logger.exception("a trace could not be written")
            del step
        self._whole.close()

    def _write(self, spool: Spool, root: Trace, size: int) -> None:
        try:
            spool.add(text(root))
        finally:
            with self._lock:
                self._waiting -= 1
                self._waiting_bytes -= size

    def next_path(self) -> Path:
        """The next of the numbered files."""
        index, self._next_index = self._next_index, self._next_index + 1
        return Path(f"{self._file}.{index}")

    def part_path(self) -> Path:
        """A file for what is not complete yet."""
        self._parts += 1
        return Path(f"{self._file}.part{self._parts}")

    @property
    def whole(self) -> _Array:
        """The file without a number."""
        return self._whole


class Spool:
    """Where the traces of one setting go: ``together`` of them to a file (0: as many as there are).

    ``numbered``: those that are complete go to a numbered file, though there is no such limit: their count is given.
    """

    def __init__(self, files: TraceFiles, together: int, *, numbered: bool) -> None:
        self._files = files
        self._together = together
        self._array: _Array | None = None if together or numbered else files.whole
        self._written = 0
        self.is_begun = False
        """Whether anything has been put into it. For the event loop."""

    # On the event loop

    def enter(self, client: TraceContext | None) -> TraceContext | None:
        """A file has no spans: who works on a request gets the client's context as it is."""
        return client

    def place(self, above: TraceContext | None) -> TraceContext | None:
        """As :meth:`enter`."""
        return above

    def put(self, root: Trace, *, last: bool) -> None:
        """Have ``root`` written; ``last``: it completes those that belong together."""
        self._files.put(self, root, last=last)

    def finish(self) -> None:
        """Have what is incomplete closed: nothing more comes."""
        if self.is_begun:
            self._files.do(self.end)

    # On the thread

    def add(self, entries: str) -> None:
        """Append a trace."""
        if self._array is None:
            self._array = _Array(self._files.part_path())
        self._array.add(entries)
        self._written += 1
        if self._together and self._written >= self._together:
            self.roll()

    def roll(self) -> None:
        """What has been written is complete: it gets its number."""
        array = self._array
        if array is None or array is self._files.whole:
            return
        self._array = None
        self._written = 0
        array.close()
        array.path.replace(self._files.next_path())

    def end(self) -> None:
        """Nothing more comes."""
        array = self._array
        if self._together or array is None or array is self._files.whole:
            self.roll()
            return
        self._array = None
        array.close()
        self._files.whole.add(array.path.read_text(encoding="ascii")[1:-1])
        array.path.unlink()


class _Array:
    """A file that holds one JSON array. Made, and emptied, when the first entries come."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream: FileIO | None = None
        self._end = 0
        """Where the closing bracket is."""

    def add(self, entries: str) -> None:
        """Append ``entries``, which are JSON with commas between. Raises OSError; then the file is as before."""
        if self._stream is None:
            if _is_no_file(self.path):  # to open a pipe that nobody reads would hold the thread for ever
                raise OSError(errno.EINVAL, _NO_FILE)
            self._stream = FileIO(self.path, "w")
        added = b"%b%b]" % (b"," if self._end else b"[", entries.encode("ascii"))
        try:
            self._put(added)
        except OSError:
            with suppress(OSError):
                if self._end:
                    self._put(b"]")
                else:
                    self.close()
                    self.path.unlink()
            raise
        self._end += len(added) - 1

    def _put(self, data: bytes) -> None:
        assert self._stream is not None
        self._stream.seek(self._end)
        left = memoryview(data)
        while left:
            left = left[self._stream.write(left) :]
        self._stream.truncate()

    def close(self) -> None:
        """Give the file back."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def _size(root: Trace) -> int:
    """About how many bytes the tensors of ``root`` and its family take."""
    return sum(
        8 * len(event.data) if isinstance(event.data, list) else event.data.nbytes
        for trace in root.family
        for event in trace.events
        if isinstance(event, TensorSeen)
    )
