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
        "--insecure",
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
    settings = parse("--sagemaker-port=9001", "--cuda-memory-pool-byte-size=0:1", "--http-port=9000")
    assert settings.sagemaker_port == 9001
    assert any(notice.startswith("--sagemaker-port has no effect yet: ") for notice in settings.notices)
    assert "--cuda-memory-pool-byte-size has no effect: Bident runs on the CPU" in settings.notices
    assert not any("--http-port" in notice for notice in settings.notices)


CERTIFICATE = ("--http-server-cert=c", "--http-server-key=k")


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (["--http-use-ssl=1"], "--http-server-cert and --http-server-key"),
        (["--grpc-use-ssl=1", "--grpc-server-cert=c"], "--grpc-use-ssl needs --grpc-server-key"),
        (["--http-use-ssl-mutual=1", *CERTIFICATE], "--http-use-ssl-mutual needs --http-root-cert"),
        ([*CERTIFICATE], "without --http-use-ssl=true: the door would not be encrypted"),
    ],
)
def test_tls_is_asked_for_as_a_whole_or_not_at_all(words: list[str], missing: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse(*words)
    assert missing in caught.value.message


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.1.2.3", "my.host"])
@pytest.mark.parametrize("door", ["http", "grpc", "metrics"])
def test_strangers_are_let_in_only_on_purpose(door: str, address: str) -> None:
    flag = f"--{door}-address={address}"
    with pytest.raises(SettingsError) as caught:
        parse(flag)
    assert caught.value.message.startswith(flag)
    for cure in ("--api-key-file", "--insecure"):
        assert cure in caught.value.message
    parse(flag, "--api-key-file=keys")
    parse(flag, "--insecure")


@pytest.mark.parametrize("address", ["127.0.0.1", "127.3.2.1", "localhost", "::1"])
def test_this_machine_needs_no_keys(address: str) -> None:
    parse(f"--http-address={address}")


def test_client_certificates_stand_in_for_keys_and_a_closed_door_needs_neither() -> None:
    parse("--http-address=0.0.0.0", "--http-use-ssl-mutual=1", "--http-root-cert=r", *CERTIFICATE)
    parse("--grpc-address=0.0.0.0", "--allow-grpc=false")
    with pytest.raises(SettingsError):
        parse("--http-address=0.0.0.0", "--http-use-ssl=1", *CERTIFICATE)


def test_workers_need_a_door_to_share_and_a_system_that_shares_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="neither is opened"):
        parse("--workers=2", "--allow-http=false", "--allow-grpc=false")
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(SettingsError, match="on Windows"):
        parse("--workers=2")
    parse("--workers=1")
