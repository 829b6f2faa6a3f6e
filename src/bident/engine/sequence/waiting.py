"""Who waits: slots for a sequence, sequences for a slot, sequences for their next request."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from time import monotonic_ns

from bident.engine.sequence.slots import Sequence, Station
from bident.wire.infer import InferRequest


class FreeSlots:
    """The slots that no sequence has. The one with the lowest number is taken first, as in Triton."""

    def __init__(self, stations: list[Station]) -> None:
        self._stations = stations
        self._heap: list[tuple[int, int]] = []
        self._present: set[Station] = set()
        for station in stations:
            if station.is_available:
                self.add(station)

    def holds(self, station: Station) -> bool:
        """Whether the slots of ``station`` are handed out."""
        return station in self._present

    def add(self, station: Station) -> None:
        """From now on the slots of ``station``, all of them free, are handed out."""
        self._present.add(station)
        heapq.heappush(self._heap, (0, self._stations.index(station)))

    def drop(self, station: Station) -> None:
        """Hand out the slots of ``station`` no more."""
        self._present.discard(station)
        index = self._stations.index(station)
        self._heap = [entry for entry in self._heap if entry[1] != index]
        heapq.heapify(self._heap)
        station.slots.clear()

    def take(self, sequence: Sequence) -> bool:
        """Give ``sequence`` a slot. False if there is none."""
        if not self._heap:
            return False
        number, index = heapq.heappop(self._heap)
        station = self._stations[index]
        if number < len(station.slots):
            station.slots[number] = sequence
        else:
            # Beyond the highest number in use so far: the next one is free too.
            station.slots.append(sequence)
            if number + 1 < station.limit:
                heapq.heappush(self._heap, (number + 1, index))
        sequence.station, sequence.number = station, number
        return True

    def give_back(self, sequence: Sequence) -> None:
        """Take back the slot of ``sequence``, if it still has one."""
        station, sequence.station = sequence.station, None
        if station is not None:
            station.slots[sequence.number] = None
            heapq.heappush(self._heap, (sequence.number, self._stations.index(station)))


class Backlog:
    """Sequences without a slot, first come first served. A request's timeout counts here, and nowhere else."""

    def __init__(self) -> None:
        self._sequences: OrderedDict[Sequence, None] = OrderedDict()
        self.next_deadline_ns = 0
        """No deadline passes before this; 0 if there is none."""

    def __bool__(self) -> bool:
        return bool(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(list(self._sequences))

    def add(self, sequence: Sequence, request: InferRequest) -> None:
        """Let ``sequence`` wait; ``request``, its latest, may limit how long."""
        self._sequences[sequence] = None
        if request.timeout_us:
            deadline_ns = request.queued_ns + request.timeout_us * 1000
            sequence.deadline_ns = min(sequence.deadline_ns or deadline_ns, deadline_ns)
            self.next_deadline_ns = min(self.next_deadline_ns or deadline_ns, deadline_ns)

    @property
    def first(self) -> Sequence:
        """Who has waited longest."""
        return next(iter(self._sequences))

    def discard(self, sequence: Sequence) -> None:
        """It waits no more."""
        self._sequences.pop(sequence, None)

    def take_expired(self, now_ns: int) -> list[Sequence]:
        """Those that have waited for longer than a request of theirs allows."""
        if not self.next_deadline_ns or now_ns < self.next_deadline_ns:
            return []
        limited = [sequence for sequence in self._sequences if sequence.deadline_ns]
        expired = [sequence for sequence in limited if sequence.deadline_ns <= now_ns]
        left = [sequence.deadline_ns for sequence in limited if sequence.deadline_ns > now_ns]
        self.next_deadline_ns = min(left, default=0)
        for sequence in expired:
            del self._sequences[sequence]
        return expired


class Idle:
    """Sequences whose requests have all been answered, and that have not ended."""

    def __init__(self, limit_ns: int) -> None:
        """``limit_ns``: how long one may be idle."""
        self._limit_ns = limit_ns
        self._until_ns: OrderedDict[Sequence, int] = OrderedDict()

    def add(self, sequence: Sequence) -> None:
        """It has nothing to do from now on."""
        self._until_ns[sequence] = monotonic_ns() + self._limit_ns

    def discard(self, sequence: Sequence) -> None:
        """It has something to do, or has ended."""
        self._until_ns.pop(sequence, None)

    @property
    def next_ns(self) -> int:
        """When the next one will have been idle for too long; 0 if there is none."""
        return next(iter(self._until_ns.values()), 0)

    def take_expired(self, now_ns: int) -> list[Sequence]:
        """Those that have been idle for too long."""
        expired: list[Sequence] = []
        while self._until_ns and self.next_ns <= now_ns:
            expired.append(self._until_ns.popitem(last=False)[0])
        return expired
