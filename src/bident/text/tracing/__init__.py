"""Spans of what the text engine answers, for OpenTelemetry: around the engine, which knows nothing of them."""
