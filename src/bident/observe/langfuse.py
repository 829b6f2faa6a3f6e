"""Langfuse's names for what a span says, as its page on OpenTelemetry has them."""

from __future__ import annotations

OBSERVATION = "langfuse.observation"
METADATA = f"{OBSERVATION}.metadata"
TRACE_NAME = "langfuse.trace.name"
