"""Where spans are sent: the command line, OpenTelemetry's environment variables, and what cannot be."""

from __future__ import annotations

import pytest

from bident.errors import ServeError, SettingsError
from bident.observe import span_settings
from bident.observe.span_settings import SpanSettings


def test_the_defaults_are_tritons() -> None:
    assert SpanSettings.parse([], {}) == SpanSettings("http://localhost:4318/v1/traces", {}, 2048, 5000, 512)


def test_the_environment_stands_behind_the_command_line() -> None:
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/otel/",
        "OTEL_BSP_MAX_QUEUE_SIZE": "9",
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "8",
        "OTEL_BSP_SCHEDULE_DELAY": "7",
    }
    assert SpanSettings.parse([], environment) == SpanSettings("http://c:4318/otel/v1/traces", {}, 9, 7, 8)
    whole = {**environment, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://d/x"}
    assert SpanSettings.parse([], whole).url == "http://d/x"
    given = [("url", "http://e/y"), ("bsp_schedule_delay", "1")]
    assert SpanSettings.parse(given, whole) == SpanSettings("http://e/y", {}, 9, 1, 8)


@pytest.mark.parametrize(
    ("key", "value", "fragment"),
    [
        ("url", "collector:4317", "it is an http or https address"),
        ("url", "http://", "it is an http or https address"),
        ("url", "http://[::1", "it is an http or https address"),
        ("url", "http://h:99999", "it is an http or https address"),
        ("resource", "service.name", "it is <attribute>=<value>"),
        ("resource", "=x", "it is <attribute>=<value>"),
        ("bsp_schedule_delay", "soon", "it is a whole number of at least 1"),
        ("bsp_max_queue_size", "0", "it is a whole number of at least 1"),
        ("bsp_max_queue_size", "100", "no more than bsp_max_queue_size, 100, can wait"),
    ],
)
def test_what_cannot_be(key: str, value: str, fragment: str) -> None:
    with pytest.raises(SettingsError) as refused:
        SpanSettings.parse([(key, value)], {})

    assert fragment in refused.value.message
    assert refused.value.message.startswith("--trace-config opentelemetry,")


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    SpanSettings().check_installed()
    monkeypatch.setattr(span_settings, "_PACKAGES", ("no_telemetry.sdk",))
    with pytest.raises(ServeError) as refused:
        SpanSettings().check_installed()

    assert "needs the package 'no_telemetry.sdk': pip install 'bident[otel]'" in refused.value.message
