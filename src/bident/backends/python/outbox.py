"""Messages on their way to a worker: sent at once if the channel takes them, kept in order if it does not."""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Sequence


class Outbox:
    """The sending end of a channel that never blocks."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._waiting: deque[tuple[memoryview, list[int]]] = deque()
        self.size = 0
        """How many bytes wait."""

    @property
    def is_empty(self) -> bool:
        """Whether the channel has taken everything."""
        return not self._waiting

    def post(self, message: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send ``message`` when its turn comes; ``descriptors`` go with it, and are closed here afterwards."""
        self._waiting.append((memoryview(message), list(descriptors)))
        self.size += len(message)
        self.flush()

    def flush(self) -> None:
        """Send what the channel takes. A channel whose other end is gone loses it all."""
        try:
            while self._waiting:
                data, descriptors = self._waiting[0]
                sent = socket.send_fds(self._channel, [data], descriptors) if descriptors else self._channel.send(data)
                for descriptor in descriptors:
                    os.close(descriptor)
                self.size -= sent
                if sent < len(data):
                    self._waiting[0] = (data[sent:], [])
                else:
                    self._waiting.popleft()
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.drop()  # whoever receives finds out how the other end went

    def drop(self) -> None:
        """Forget what has not been sent."""
        for _, descriptors in self._waiting:
            for descriptor in descriptors:
                os.close(descriptor)
        self._waiting.clear()
        self.size = 0


class Unread:
    """The blocks of shared memory that answers to a worker's calls lie in, until the worker has done reading them."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self.size = 0
        """How many bytes they take."""

    def add(self, block: Sequence[int]) -> None:
        """Note ``block``, as ``Blocks.take`` describes it."""
        self._sizes[block[0]] = block[3]
        self.size += block[3]

    def free(self, block_ids: Sequence[int]) -> None:
        """The worker has read these blocks, which may be others too."""
        for block_id in block_ids:
            self.size -= self._sizes.pop(block_id, 0)
