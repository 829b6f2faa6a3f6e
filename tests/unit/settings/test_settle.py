"""What settings say about each other."""

from __future__ import annotations

import pytest

from bident.errors import SettingsError
from bident.settings import TensorSettings, parse_tensor_args
from bident.settings.values import Named


def parse(*argv: str) -> TensorSettings:
    return parse_tensor_args(argv, {})


def test_all_port_collisions_are_listed_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        parse("--http-port=7", "--grpc-port=7", "--metrics-port=7")
    assert caught.value.message.count("7; change --") == 3


def test_port_zero_never_collides_and_closed_doors_do_not_count() -> None:
    parse("--http-port=0", "--grpc-port=0", "--metrics-port=0")
    parse("--metrics-port=8000", "--allow-metrics=false")


def test_defaults_that_follow_and_deprecated_flags() -> None:
    settings = parse(
        "--http-address=0.0.0.0",
        "--strict-model-config=true",
        "--response-cache-byte-size=9",
        "--trace-file=t",
        "--trace-level=TIMESTAMPS",
        "--trace-rate=5",
    )
    assert settings.metrics_address == "0.0.0.0"
    assert settings.disable_auto_complete_config
    assert settings.cache_config == {"local": {"size": "9"}}
    assert settings.trace_config == (
        Named("triton", "file", "t"),
        Named("", "level", "TIMESTAMPS"),
        Named("", "rate", "5"),
    )
    assert "--strict-model-config is deprecated, use --disable-auto-complete-config" in settings.notices


def test_settings_without_effect_are_accepted_and_said() -> None:
    settings = parse("--grpc-port=9001", "--cuda-memory-pool-byte-size=0:1", "--http-port=9000")
    assert settings.grpc_port == 9001
    assert any(notice.startswith("--grpc-port has no effect yet: ") for notice in settings.notices)
    assert "--cuda-memory-pool-byte-size has no effect: Bident runs on the CPU" in settings.notices
    assert not any("--http-port" in notice for notice in settings.notices)


@pytest.mark.parametrize(
    "flag",
    [
        "--grpc-use-ssl=true",
        "--grpc-use-ssl-mutual=true",
    ],
)
def test_a_protection_that_is_not_there_keeps_the_server_from_starting(flag: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse(flag)
    assert caught.value.message.startswith(flag.partition("=")[0])
    assert "is not built yet; Bident does not start rather than ignore it" in caught.value.message


def test_a_protection_that_is_refused_may_be_off_from_every_source() -> None:
    assert parse("--grpc-use-ssl=false").notices == ()
    with pytest.raises(SettingsError, match="--grpc-use-ssl:"):
        parse_tensor_args([], {"BIDENT_GRPC_USE_SSL": "on"})
