"""The worker's end of the channel.

No thread is spent on reading: whichever thread waits for something reads for all (the others wait for
it), so that a batch goes from the socket to ``execute`` without a hand-over. Only asyncio code, which
cannot wait that way, has a thread read for it, and only while it has something under way.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Callable, NoReturn

from . import forms
from .arrays import Parcel, unpack
from .frames import BrokenChannelError, Frame, Kind, Reader, prefix
from .memory import Blocks, Segment, Views

if TYPE_CHECKING:
    from .sender import Batch

EXIT_CHANNEL = 70
_SPIN_NS = 200_000
"""How long to look for the next batch before going to sleep, if the last one came that soon."""
_let_others_run: Callable[[], None] = getattr(os, "sched_yield", lambda: time.sleep(0))


def encode(header: Any) -> bytes:
    """``header`` as JSON that any strict reader accepts: text that is no Unicode is made so."""
    return json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


class Waiter:
    """A place for the answers to one call. ``notify``, if set, is called with each as it comes, instead."""

    __slots__ = ("answers", "notify")

    def __init__(self, notify: Callable[[Frame], None] | None = None) -> None:
        self.answers: deque[Frame] = deque()
        self.notify = notify


class Link:
    """The channel to the server: sends from any thread, receives for any thread."""

    parcel = Parcel
    waiter = Waiter

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._reader = Reader(channel, json.loads)
        self._sending = threading.Lock()
        self._turn = threading.Condition(threading.Lock())
        self._reading = False
        self._last_call = 0
        self._waiters: dict[int, Waiter] = {}
        self._background = 0
        self._background_thread: threading.Thread | None = None
        self.views = Views()
        self.blocks = Blocks(self._obtain, self._retire)
        self._aside: deque[tuple[int, dict[str, Any]]] = deque()
        self._retired: deque[int] = deque()
        self.jobs: deque[Frame] = deque()
        self.batches: dict[int, Batch] = {}
        """Batches with requests that await an answer."""
        self.forms: dict[int, forms.Form] = {}
        """What batches look like that the server sends without describing them."""
        self._told_forms = forms.Forms(lambda number, key: self.send(Kind.FORM, {"form": number, "columns": key}))
        self._comes_soon = False
        """Whether the last message came soon after it was first waited for."""
        self.closing = False
        self._forked = False
        os.register_at_fork(after_in_child=self._leave_to_parent)

    def _leave_to_parent(self) -> None:
        """In a fork of the worker, which must not speak for it."""
        self._forked = True
        self._channel.close()
        self._sending = threading.Lock()
        self._turn = threading.Condition(threading.Lock())

    # ------------------------------------------------------------------ sending

    def send(self, kind: int, header: dict[str, Any], parcel: Parcel | None = None) -> None:
        """Send one message. A channel that cannot take it ends the process: there is nobody left to serve."""
        if self._forked:
            raise RuntimeError("this process is a fork of the model's worker: only the worker can ask the server")
        if parcel is not None and parcel.shared_size:
            description, place = self.blocks.take(parcel.shared_size)
            parcel.write(place)
            header["block"] = description
        with self._sending:
            self._write(kind, header, parcel)
        self._send_aside()

    def send_plain(self, key: Any, columns: Sequence[Any], header: tuple[int, int, int, int, int]) -> bool:
        """Answer a whole batch in a message of the form ``key``; False if it has to go the long way.

        ``header``: batch, requests, rows of each, begin and end of ``execute``.
        """
        if self.views.has_freed or self._retired or self._forked:
            return False
        number = self._told_forms.number(key)
        payload = None if number is None else forms.payload_of(columns)
        if payload is None:
            return False
        batch, *rest = header
        parts, size = payload
        message = [prefix(Kind.PLAIN, forms.HEADER.size, size), forms.HEADER.pack(batch, number, *rest), *parts]
        with self._sending:
            self._send_all(b"".join(message))
        self._send_aside()
        return True

    def send_aside(self, kind: int, header: dict[str, Any]) -> None:
        """Send one message from anywhere, also out of a destructor that runs in the middle of ``send``."""
        if self._forked:
            return
        self._aside.append((kind, header))
        self._send_aside()

    def _send_aside(self) -> None:
        # Whoever cannot have the lock leaves the message to whoever has it, who looks again after giving it back.
        while self._aside and self._sending.acquire(blocking=False):
            try:
                while self._aside:
                    kind, header = self._aside.popleft()
                    self._write(kind, header, None)
            finally:
                self._sending.release()

    def _write(self, kind: int, header: dict[str, Any], parcel: Parcel | None) -> None:
        freed = self.views.take_freed()
        if freed:
            header["free"] = freed
        if self._retired:
            header["retired"] = [self._retired.popleft() for _ in range(len(self._retired))]
        data = encode(header)
        if parcel is None:
            parts: list[Any] = [prefix(kind, len(data), 0), data]
        else:
            parts = [prefix(kind, len(data), parcel.payload_size), data, *parcel.payload]
        self._send_all(b"".join(parts))

    def _send_all(self, message: bytes) -> None:
        try:
            self._channel.sendall(message)
        except (BrokenPipeError, ConnectionResetError):
            self._end_with_server()
        except OSError:
            os._exit(EXIT_CHANNEL)

    # ------------------------------------------------------------------ receiving

    def wait(self, ready: Callable[[], Any]) -> None:
        """Return once ``ready()`` is true; reads the channel whenever no other thread does."""
        turn = self._turn
        with turn:
            while not ready():
                if self._reading:
                    turn.wait()
                    continue
                self._reading = True
                turn.release()
                try:
                    frames = self._look_soon()
                finally:
                    turn.acquire()
                    self._reading = False
                    turn.notify_all()
                for frame in frames:
                    self._dispatch(frame)

    def poll(self) -> None:
        """Take in what has arrived, without waiting."""
        with self._turn:
            if self._reading:
                return
            try:
                frames = self._read(socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            for frame in frames:
                self._dispatch(frame)
            self._turn.notify_all()

    def _look_soon(self) -> list[Frame]:
        """What comes within a moment, if it did the last time: being woken takes longer than most models."""
        began = time.monotonic_ns()
        frames: list[Frame] = []
        while self._comes_soon and not frames and time.monotonic_ns() - began < _SPIN_NS:
            try:
                frames = self._read(socket.MSG_DONTWAIT)
            except BlockingIOError:
                _let_others_run()
        frames = frames or self._read()
        self._comes_soon = time.monotonic_ns() - began < _SPIN_NS
        return frames

    def _read(self, flags: int = 0) -> list[Frame]:
        try:
            frames = self._reader.read(flags)
        except (BlockingIOError, InterruptedError):
            if flags:
                raise
            return []
        except (OSError, BrokenChannelError):
            os._exit(0 if self.closing else EXIT_CHANNEL)
        if frames is None:
            self._end_with_server()
        return frames

    def _dispatch(self, frame: Frame) -> None:
        header = frame.header
        if "free" in header:
            self.blocks.free(header["free"])
        for segment in header.get("retired", ()):
            self.views.detach(segment)
        if "block" in header:
            frame.block = self.views.look(header["block"])
        kind = frame.kind
        if kind in (Kind.ANSWER, Kind.INFER_ANSWER):
            self._hand_over(frame)
        elif kind == Kind.FORM:
            self.forms[header["form"]] = forms.Form(header["columns"])
        elif kind == Kind.CANCEL:
            self._cancel(header["batch"], header["indexes"])
        elif kind == Kind.SEGMENT:
            descriptor = frame.descriptors[0]
            self.views.attach(header["segment"], descriptor, header["size"])
            os.close(descriptor)
        elif kind != Kind.FREE:
            self.jobs.append(frame)

    def _cancel(self, batch_id: int, indexes: list[int]) -> None:
        batch = self.batches.get(batch_id)
        if batch is not None:
            batch.cancelled.update(indexes)
            return
        for job in self.jobs:
            if job.header.get("batch") == batch_id:
                job.header.setdefault("cancelled", []).extend(indexes)

    def _hand_over(self, frame: Frame) -> None:
        waiter = self._waiters.get(frame.header["call"])
        if waiter is None:
            for descriptor in frame.descriptors:
                os.close(descriptor)
        elif waiter.notify is not None:
            waiter.notify(frame)
        else:
            waiter.answers.append(frame)

    @staticmethod
    def arrays(frame: Frame, descriptions: Sequence[Any]) -> list[Any]:
        """The arrays of a message."""
        return [unpack(description, frame.payload, frame.block) for description in descriptions]

    # ------------------------------------------------------------------ calls

    def open_call(self, waiter: Waiter) -> int:
        """A number for a call whose answers go to ``waiter``."""
        with self._turn:
            self._last_call += 1
            self._waiters[self._last_call] = waiter
            return self._last_call

    def close_call(self, call: int) -> None:
        """No more answers are wanted."""
        with self._turn:
            self._waiters.pop(call, None)

    def forget_call(self, call: int) -> None:
        """The same, from a destructor."""
        self._waiters.pop(call, None)

    def next_answer(self, waiter: Waiter) -> Frame:
        """Wait for the next answer."""
        if not waiter.answers:
            self.wait(lambda: waiter.answers)
        return waiter.answers.popleft()

    def ask(self, what: str, parcel: Parcel | None = None, **details: Any) -> Frame:
        """Ask the server for ``what``, and wait for the answer."""
        waiter = Waiter()
        call = self.open_call(waiter)
        try:
            self.send(Kind.CALL, {"call": call, "what": what, **details}, parcel)
            return self.next_answer(waiter)
        finally:
            self.close_call(call)

    def tell_freed(self) -> None:
        """Let the server have back what nobody looks at any more, though nothing else is to be said."""
        if self.views.has_freed:
            self.send(Kind.FREE, {})

    def _obtain(self, size: int) -> Segment:
        answer = self.ask("segment", size=size)
        header = answer.header
        if "error" in header:
            raise MemoryError(header["error"])
        descriptor = answer.descriptors[0]
        try:
            return Segment(header["segment"], descriptor, header["size"])
        finally:
            os.close(descriptor)

    def _retire(self, segment: Segment) -> None:
        self._retired.append(segment.id)

    # ------------------------------------------------------------------ threads

    def read_in_background(self) -> None:
        """Something is under way that no thread waits for. Ended by ``read_no_longer``."""
        with self._turn:
            self._background += 1
            if self._background_thread is None:
                thread = threading.Thread(target=self._serve_background, name="bident channel", daemon=True)
                self._background_thread = thread
                thread.start()
            self._turn.notify_all()

    def read_no_longer(self) -> None:
        """The opposite of ``read_in_background``."""
        with self._turn:
            self._background -= 1

    def _serve_background(self) -> None:
        turn = self._turn
        while True:
            with turn:
                while not self._background:
                    turn.wait()
            self.wait(lambda: not self._background)

    def watch_for_end(self) -> None:
        """End the process when the server is gone, also while the model is at work."""
        threading.Thread(target=self._await_end, name="bident end", daemon=True).start()

    def _await_end(self) -> None:
        poll = select.poll()
        poll.register(self._channel.fileno(), 0)
        while True:
            for _, events in poll.poll():
                if events & (select.POLLHUP | select.POLLERR | select.POLLNVAL):
                    self._end_with_server()

    def _end_with_server(self) -> NoReturn:
        """The server is gone: end the process, and what the model has started in its process group."""
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(0 if self.closing else EXIT_CHANNEL)
