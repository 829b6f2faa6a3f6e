"""The transport of a connection without a network."""

from __future__ import annotations

from typing import Any


class LineTransport:
    """Keeps what is written. ``stuck`` bytes of it count as not yet sent."""

    def __init__(self) -> None:
        self.written = b""
        self.stuck = 0
        self.closed = False
        self.aborted = False
        self.eof_written = False
        self.receiving = True

    def write(self, data: Any) -> None:
        assert not self.eof_written, "write after write_eof"
        if not self.closed:
            self.written += bytes(data)

    def writelines(self, pieces: Any) -> None:
        for piece in pieces:
            self.write(piece)

    def get_write_buffer_size(self) -> int:
        return self.stuck

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.eof_written = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.receiving = False

    def resume_reading(self) -> None:
        self.receiving = True
