"""A burst within one tick is not refused while an instance is idle."""

from __future__ import annotations
