"""Free TCP ports on 127.0.0.1, from a range that is the benchmarks' own."""

from __future__ import annotations

import itertools
import random
import socket

RANGE = range(21000, 22000)

# Two runs at once must not walk through the range in step.
_next = itertools.cycle(random.sample(RANGE, len(RANGE)))


def free_port() -> int:
    """A port that nothing listens on right now; each call gives another one."""
    for _ in RANGE:
        port = next(_next)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port between {RANGE.start} and {RANGE.stop - 1}")
