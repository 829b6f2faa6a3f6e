"""Where spans are sent, and how: the settings of ``--trace-config opentelemetry,<setting>=<value>``.

They are Triton's (``docs/user_guide/trace.md``), and so is that OpenTelemetry's own environment variables hold
where a setting is not given. Headers, which may be secret, have only their variable (``OTEL_EXPORTER_OTLP_HEADERS``).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from urllib.parse import urlsplit

from bident.errors import Code, ServeError, SettingsError
from bident.settings.addresses import is_web_address

OPENTELEMETRY = "opentelemetry"
_DEFAULT_URL = "http://localhost:4318/v1/traces"
_QUEUE, _DELAY_MS, _BATCH = 2048, 5000, 512
"""OpenTelemetry's own."""
_NUMBERS = {
    "bsp_max_queue_size": ("OTEL_BSP_MAX_QUEUE_SIZE", _QUEUE),
    "bsp_schedule_delay": ("OTEL_BSP_SCHEDULE_DELAY", _DELAY_MS),
    "bsp_max_export_batch_size": ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", _BATCH),
}
SPAN_OPTIONS = ("url", "resource", *_NUMBERS)
_PACKAGES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


@dataclass(frozen=True)
class SpanSettings:
    """Spans go to ``url``, at most ``batch`` of them every ``delay_ms``; ``queue`` is how many may wait."""

    url: str = _DEFAULT_URL
    resource: Mapping[str, str] = field(default_factory=dict)
    """What is said of the server itself, by OpenTelemetry's names."""
    queue: int = _QUEUE
    delay_ms: int = _DELAY_MS
    batch: int = _BATCH

    @classmethod
    def parse(cls, options: Iterable[tuple[str, str]], environment: Mapping[str, str] = os.environ) -> SpanSettings:
        """``options``: names from ``SPAN_OPTIONS``, with values. Raises SettingsError for a value that cannot be."""
        values: dict[str, str] = {}
        resource: dict[str, str] = {}
        for key, value in options:
            if key == "resource":
                name, equals, said = value.partition("=")
                if not name or not equals:
                    raise _wrong(key, value, "it is <attribute>=<value>, as in service.name=reception")
                resource[name] = said
            else:
                values[key] = value
        queue, delay_ms, batch = (_number(key, values, environment) for key in _NUMBERS)
        if batch > queue:
            raise _wrong("bsp_max_export_batch_size", str(batch), f"no more than bsp_max_queue_size, {queue}, can wait")
        return cls(_url(values, environment), resource, queue, delay_ms, batch)

    def check_installed(self) -> None:
        """Raises UNAVAILABLE, naming the extra, if the packages that send spans are not there."""
        for package in _PACKAGES:
            if not _is_there(package):
                raise ServeError(
                    Code.UNAVAILABLE,
                    f"--trace-config mode={OPENTELEMETRY} needs the package '{package}': pip install 'bident[otel]'",
                )

    def described(self) -> dict[str, str]:
        """The form that clients get. A password in the address is not for them."""
        said = {"url": self.shown_url}
        if self.resource:
            said["resource"] = ",".join("=".join(pair) for pair in self.resource.items())
        return said | dict(zip(_NUMBERS, map(str, (self.queue, self.delay_ms, self.batch)), strict=True))

    @property
    def shown_url(self) -> str:
        """The address without a name and a password in it."""
        parts = urlsplit(self.url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ImportError:  # not even what it is a part of
        return False


def _url(values: Mapping[str, str], environment: Mapping[str, str]) -> str:
    url = values.get("url") or environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
    base = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    if not url and base:
        url = f"{base.rstrip('/')}/v1/traces"
    url = url or _DEFAULT_URL
    if not is_web_address(url):
        raise _wrong("url", url, f"it is an http or https address that takes OTLP, as {_DEFAULT_URL}")
    return url


def _number(key: str, values: Mapping[str, str], environment: Mapping[str, str]) -> int:
    variable, default = _NUMBERS[key]
    text = values.get(key) or environment.get(variable) or str(default)
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not int(text):
        raise _wrong(key, text, "it is a whole number of at least 1")
    return int(text)


def _wrong(key: str, value: str, why: str) -> SettingsError:
    return SettingsError(f"--trace-config {OPENTELEMETRY},{key}={value}: {why}")
