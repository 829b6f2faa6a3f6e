"""How far a client may stay behind with what is written to it: the same over both doors."""

from __future__ import annotations

MOST_UNSENT = 16 << 20
"""While a stream is written, more than these many bytes may wait for the client only for a moment."""
MOST_AT_ONCE = 4 * MOST_UNSENT
"""Beyond so many, nothing may be added."""
MOMENT_SECONDS = 2.0
