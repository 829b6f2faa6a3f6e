"""The server's side of one worker process: batches out, events in, and nobody waits."""

from __future__ import annotations

import mmap
import os
import select
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson

from bident.backends.python import incoming, outgoing, segments
from bident.backends.python.messages import Arrays, Batch, Died, Event, ModelCall, Reply, Started
from bident.backends.python.outbox import Outbox, Unread
from bident.backends.python.process import Process
from bident.backends.python.spec import WorkerSpec
from bident.backends.python.worker.bident_worker.arrays import DATATYPE, DamagedError, Parcel
from bident.backends.python.worker.bident_worker.forms import HEADER, Forms, payload_of
from bident.backends.python.worker.bident_worker.frames import Frame, Kind, Reader, prefix
from bident.backends.python.worker.bident_worker.memory import SEGMENT_LIMIT, Blocks, Segment, Views
from bident.errors import Code, ServeError

_READ_ONLY = mmap.ACCESS_READ
_READS = 4
_FREED_LIMIT = 16


class Worker:
    """One worker process, from its start to its end. Not safe for threads; used by one at a time.

    ``receive`` is called when ``fileno()`` is readable, ``flush`` when it is writable and ``wants_write``
    is set. The constructor, ``complete``, ``initialize`` and ``finalize`` block: they belong off the loop.
    """

    def __init__(self, spec: WorkerSpec) -> None:
        """Start the process. Raises ServeError when it cannot be."""
        self.spec = spec
        environment = {**os.environ, "PYTHONUTF8": "1", "PYTHONIOENCODING": "utf-8", **spec.environment}
        try:
            self._process = Process(spec.instance_name, spec.interpreter, environment, Path.cwd())
        except OSError as error:
            raise ServeError(
                Code.INTERNAL, f"Launch stub process failed for '{spec.instance_name}': {spec.interpreter}: {error}"
            ) from error
        self.pid = self._process.pid
        self.alive = True
        self._channel = self._process.channel
        self._reader = Reader(self._channel, orjson.loads)
        self._views = Views(access=_READ_ONLY)
        self._blocks = Blocks(self._make_segment, self._retire)
        self._retired: list[int] = []
        self._outbox = Outbox(self._channel)
        self._their_segments: dict[int, int] = {}
        self._last_segment = 0
        self._unread = Unread()
        self._failure: str | None = None
        self._abandoned = False
        self._forms = Forms(lambda number, key: self._say(Kind.FORM, {"form": number, "columns": key}))
        self._responses = incoming.Responses()
        self._open = self._responses.open

    # ------------------------------------------------------------------ for the loop

    def fileno(self) -> int:
        """Readable when ``receive`` has something to give."""
        return self._channel.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether there is something that the channel would not take yet."""
        return not self._outbox.is_empty

    @property
    def busy(self) -> bool:
        """Whether any request awaits an answer."""
        return bool(self._open)

    def send(self, batch: Batch) -> None:
        """Send ``batch`` to be executed. Raises ServeError, and then nothing was sent."""
        if not self.alive:
            raise ServeError(Code.INTERNAL, self._unhealthy())
        header, parcel = outgoing.batch(batch)
        before_ns = time.monotonic_ns()  # a quick worker may be done before this process goes on
        self._say(Kind.BATCH, header, parcel)
        self._responses.sent(batch.id, len(batch.requests), before_ns)

    def send_plain(self, number: int, count: int, rows: int, columns: Arrays) -> bool:
        """Send a batch of ``count`` requests of ``rows`` rows each that say nothing but their inputs.

        False if it has to go the long way, with ``send``. Raises ServeError, and then nothing was sent.
        """
        if not self.alive:
            raise ServeError(Code.INTERNAL, self._unhealthy())
        if self._retired or self._views.freed_count:
            return False  # a message that gives back what has been read
        form = self._forms.number(
            tuple([(name, DATATYPE.get(array.dtype, ""), array.shape[1:]) for name, array in columns.items()])
        )
        payload = None if form is None else payload_of([(array,) for array in columns.values()])
        if payload is None:
            return False
        parts, size = payload
        header = HEADER.pack(number, form, count, rows, 0, 0)
        before_ns = time.monotonic_ns()
        self._outbox.post(b"".join([prefix(Kind.PLAIN, HEADER.size, size), header, *parts]))
        self._responses.sent(number, count, before_ns)
        return True

    def cancel(self, batch: int, indexes: Sequence[int]) -> None:
        """Let the model know that nobody waits for these requests any more. They are answered all the same."""
        if batch in self._open:
            self._say(Kind.CANCEL, {"batch": batch, "indexes": list(indexes)})

    def answer_infer(
        self,
        call: int,
        outputs: Arrays | None = None,
        *,
        error: ServeError | None = None,
        parameters: dict[str, Any] | None = None,
        final: bool = True,
    ) -> None:
        """Answer an InferCall once; ``outputs`` None without ``error`` says only that it was the last time.

        Raises ServeError, and then nothing was sent, when the worker has too much to read as it is.
        """
        waiting, limit = self._outbox.size + self._unread.size, self.spec.unread_limit
        if outputs and waiting >= limit:
            why = f"{waiting} bytes of other models' answers wait for '{self.spec.instance_name}' or are kept by it"
            cure = "read answers as they come, and let go of those that have been read"
            raise ServeError(Code.UNAVAILABLE, f"{why}, and no more than {limit} may: {cure}")
        header, parcel = outgoing.infer_answer(call, outputs, error, parameters, final)
        self._say(Kind.INFER_ANSWER, header, parcel)
        if "block" in header:
            self._unread.add(header["block"])

    def answer_call(self, call: int, *, error: str | None = None, **details: Any) -> None:
        """Answer a ModelCall (``ready=`` for ``is_ready``) or a MetricCall (``id=`` or ``value=``)."""
        self._say(Kind.ANSWER, {"call": call, **({"error": error} if error is not None else details)})

    def ask_ready(self, token: int) -> None:
        """Ask the model's ``is_ready``; the answer, a Readiness, comes between two batches."""
        self._say(Kind.ASK_READY, {"token": token})

    def receive(self) -> list[Event]:
        """What has arrived. The last event of a worker is Died."""
        events: list[Event] = []
        if not self.alive:
            return events
        try:
            for _ in range(_READS):
                frames = self._read()
                if frames is None:
                    return [*events, *self._end()]
                for frame in frames:
                    self._take(frame, events)
                if not self._reader.more:
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            return [*events, *self._end()]
        except Exception as error:  # noqa: BLE001 - whatever its message makes fail here is the worker's fault
            return [*events, *self.refute(error)]
        if self._views.freed_count >= _FREED_LIMIT:
            self._say(Kind.FREE, {})
        return events

    def flush(self) -> None:
        """Send what had to wait."""
        self._outbox.flush()

    def abandon(self, why: str) -> list[Event]:
        """Give up what awaits an answer; returns the error replies. What the worker still says of it is not heard."""
        error = ServeError(Code.UNAVAILABLE, why)
        replies: list[Event] = [
            Reply(batch, i, {}, error) for batch, open_ in self._open.items() for i in sorted(open_)
        ]
        self._open.clear()
        self._abandoned = True
        return replies

    def refute(self, error: Exception) -> list[Event]:
        """End the worker, whose message made ``error`` happen; returns its last events."""
        if not self.alive:
            return []
        self._fail(f"it sent a message that makes no sense ({type(error).__name__}: {error})")
        return self._end()

    def kill(self, why: str) -> None:
        """End the process at once; its requests fail, and ``receive`` tells, with ``why``."""
        self._fail(why)

    # ------------------------------------------------------------------ off the loop

    def complete(self, seconds: float, handle: Callable[[Event], None]) -> dict[str, Any] | None:
        """The configuration as the model's ``auto_complete_config`` has it, None if it has none.

        Blocks. ``handle`` gets what comes meanwhile. Raises ServeError; then the process is ended.
        """
        return self._started("complete", seconds, handle).config

    def initialize(self, seconds: float, handle: Callable[[Event], None]) -> None:
        """Have the model initialised. Blocks. Raises ServeError; then the process is ended."""
        self._started("initialize", seconds, handle)

    def finalize(self, seconds: float, handle: Callable[[Event], None]) -> None:
        """Have the model finalised, and end the process, by force after ``seconds``. Blocks."""
        if self.alive:
            self._say(Kind.FINALIZE, {})
            self._wait(seconds, handle, lambda event: isinstance(event, Died))
        self.close()

    def close(self) -> None:
        """End the process, if it runs, and give back everything."""
        if self.alive:
            self._fail("the server ended it")
            self._process.ended.wait(10)
            self._give_up()

    def _started(self, do: str, seconds: float, handle: Callable[[Event], None]) -> Started:
        spec = self.spec
        self._say(
            Kind.START,
            {"do": do, "args": spec.arguments(), "file": spec.file_name, "decoupled": spec.decoupled},
        )
        event = self._wait(seconds, handle, lambda event: isinstance(event, Started | Died))
        if isinstance(event, Started) and event.error is None:
            return event
        if isinstance(event, Started):
            self.close()
            raise ServeError(Code.INTERNAL, str(event.error))
        if isinstance(event, Died):
            raise ServeError(Code.INTERNAL, event.reason)
        word = "auto_complete_config" if do == "complete" else "initialize"
        allow = "--backend-config=python,stub-timeout-seconds=N allows it more"
        self._fail(f"'{word}' did not return within {seconds:g} seconds; {allow}")
        self.close()
        raise ServeError(Code.INTERNAL, self._unhealthy())

    def _wait(self, seconds: float, handle: Callable[[Event], None], wanted: Callable[[Event], bool]) -> Event | None:
        deadline = time.monotonic() + seconds
        poll = select.poll()
        while self.alive and (left := deadline - time.monotonic()) > 0:
            poll.register(self.fileno(), select.POLLIN | (select.POLLOUT if self.wants_write else 0))
            poll.poll(left * 1000)
            self.flush()
            for event in self.receive():
                if wanted(event):
                    return event
                if isinstance(event, ModelCall):
                    self.answer_call(event.call, error="Server not ready: the model is being initialised or finalised")
                elif not isinstance(event, Reply | Died):
                    try:
                        handle(event)
                    except Exception as error:  # noqa: BLE001 - what its message makes fail is the worker's fault
                        return self.refute(error)[-1]
        return None

    # ------------------------------------------------------------------ receiving

    def _read(self) -> list[Frame] | None:
        frames = self._reader.read()
        for frame in frames or ():
            for descriptor in frame.descriptors:  # a worker has none to give
                os.close(descriptor)
        return frames

    def _take(self, frame: Frame, events: list[Event]) -> None:
        header = frame.header
        if "free" in header:
            self._blocks.free(header["free"])
            self._unread.free(header["free"])
        for segment in header.get("retired", ()):
            self._views.detach(segment)
            del self._their_segments[segment]
        if "block" in header:
            frame.block = self._views.look(header["block"])
        if frame.kind == Kind.CALL and header["what"] == "segment":
            self._give_segment(header["call"], header["size"])
        elif frame.kind in incoming.ANSWERING:
            if not self._abandoned:
                self._responses.take(frame, events)
        else:
            incoming.other(frame, events)

    def _give_segment(self, call: Any, wanted: Any) -> None:
        if not isinstance(wanted, int) or wanted <= 0 or not isinstance(call, int):
            raise DamagedError("it asked for memory of no size")
        held = sum(self._their_segments.values())
        if held + wanted > self.spec.memory_limit or len(self._their_segments) >= SEGMENT_LIMIT:
            limit = f"{held} of {self.spec.memory_limit} bytes are in use"
            self.answer_call(call, error=f"no shared memory for {wanted} more bytes: {limit}")
            return
        try:
            descriptor, size = segments.make(wanted)
            self._last_segment += 1
            self._views.attach(self._last_segment, descriptor, size)
        except (OSError, ValueError, OverflowError) as error:
            self.answer_call(call, error=f"no shared memory for {wanted} bytes: {error}")
            return
        self._their_segments[self._last_segment] = size
        self._say(Kind.ANSWER, {"call": call, "segment": self._last_segment, "size": size}, None, [descriptor])

    def _end(self) -> list[Event]:
        """The process is gone, or has to go: what that means for its requests."""
        self._process.kill()
        reason = self._unhealthy()
        events: list[Event] = []
        for batch, indexes in self._open.items():
            events += [Reply(batch, index, {}, ServeError(Code.INTERNAL, reason)) for index in sorted(indexes)]
        self._open.clear()
        self._give_up()
        return [*events, Died(reason)]

    def _give_up(self) -> None:
        self.alive = False
        self._outbox.drop()
        for descriptor in self._reader.take_descriptors():
            os.close(descriptor)
        self._process.close()
        self._views = Views(access=_READ_ONLY)
        self._blocks = Blocks(self._make_segment, self._retire)

    def _fail(self, why: str) -> None:
        if self._failure is None:
            self._failure = why
        self._process.kill()

    def _unhealthy(self) -> str:
        why = self._failure or self._process.how_it_ended()
        unhealthy = f"Stub process '{self.spec.instance_name}' is not healthy. {why[:1].upper()}{why[1:]}"
        unfit = self._process.unfit
        return f"{unfit}\n{unhealthy}" if unfit else unhealthy

    # ------------------------------------------------------------------ sending

    def _say(
        self, kind: int, header: dict[str, Any], parcel: Parcel | None = None, descriptors: Sequence[int] = ()
    ) -> None:
        if not self.alive:
            return
        size = 0
        parts: list[Any] = []
        if parcel is not None:
            size = parcel.payload_size
            parts = parcel.payload
            if parcel.shared_size:
                description, place = self._take_block(parcel.shared_size)
                parcel.write(place)
                header["block"] = description
        freed = self._views.take_freed()
        if freed:
            header["free"] = freed
        if self._retired:
            header["retired"] = self._retired
            self._retired = []
        data = outgoing.encoded(header)
        self._outbox.post(b"".join([prefix(kind, len(data), size, len(descriptors)), data, *parts]), descriptors)

    def _take_block(self, size: int) -> tuple[list[int], Any]:
        try:
            return self._blocks.take(size)
        except (OSError, ValueError) as error:
            raise ServeError(Code.UNAVAILABLE, f"no shared memory for {size} bytes: {error}") from error

    def _make_segment(self, size: int) -> Segment:
        descriptor, size = segments.make(size)
        self._last_segment += 1
        segment = Segment(self._last_segment, descriptor, size)
        self._say(Kind.SEGMENT, {"segment": segment.id, "size": size}, None, [descriptor])
        return segment

    def _retire(self, segment: Segment) -> None:
        self._retired.append(segment.id)
