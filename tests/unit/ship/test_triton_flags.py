"""What a real Triton is told of the settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from bident.errors import SettingsError
from bident.settings import given_texts, parse_tensor_args
from bident.ship.triton import flags
from bident.ship.triton.flags import Told, known_flags, tell

USAGE = """
  --model-control-mode <string>
	Options are "none", "poll" and "explicit". See --load-model and --grpc-http2-max-pings-without-data.
  --disable-auto-complete-config
  --cache-config <<string>,<string>=<string>>
  --backend-config <<string>,<string>=<string>>
"""


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flags, "has_gpu", lambda: False)


def told(*argv: str, environ: dict[str, str] | None = None, home: Path = Path("/nowhere")) -> Told:
    settings = parse_tensor_args(argv, environ or {})
    return tell(settings, given_texts(argv, environ or {})[0], known_flags(USAGE), home)


def test_addresses_and_ports_are_always_told() -> None:
    assert told().flags[:9] == [
        *("--allow-http=true", "--http-address=127.0.0.1", "--http-port=8000"),
        *("--allow-grpc=true", "--grpc-address=127.0.0.1", "--grpc-port=8001"),
        *("--allow-metrics=true", "--metrics-address=127.0.0.1", "--metrics-port=8002"),
    ]
    closed = told("--allow-metrics=false").flags
    assert "--allow-metrics=false" in closed
    assert not [flag for flag in closed if flag.startswith("--metrics-")]


def test_what_was_given_is_passed_on_as_it_was_written() -> None:
    argv = ["--model-control-mode", "explicit", "--load-model=a", "--load-model=b", "--disable-auto-complete-config"]
    passed = told(*argv, environ={"BIDENT_BACKEND_CONFIG": "python,x=1;y=2"}).flags
    for flag in (
        *("--model-control-mode=explicit", "--load-model=a", "--load-model=b", "--disable-auto-complete-config"),
        *("--backend-config=python,x=1", "--backend-config=y=2"),
    ):
        assert flag in passed


def test_a_flag_without_a_value_that_is_set_to_false_is_not_told() -> None:
    def passed(value: str) -> list[str]:
        return told(environ={"BIDENT_DISABLE_AUTO_COMPLETE_CONFIG": value}).flags

    assert "--disable-auto-complete-config" in passed("true")
    assert "--disable-auto-complete-config" not in passed("false")


def test_defaults_of_ours_are_not_told() -> None:
    assert not [flag for flag in told().flags if flag.startswith(("--exit", "--model", "--log", "--engine"))]


def test_what_it_does_not_know_is_said() -> None:
    answer = told("--workers=2", "--engine=triton", "--backend-directory=/x")
    assert answer.notices == [
        "--workers has no effect with --engine=triton: this Triton has no such flag",
        "--backend-directory has no effect with --engine=triton: its own folders are taken",
    ]
    assert not [flag for flag in answer.flags if flag.startswith(("--workers", "--engine", "--backend-directory"))]


@pytest.mark.parametrize("protection", ["--api-key-file=keys", "--http-use-ssl=true"])
def test_protection_is_never_dropped_in_silence(protection: str) -> None:
    more = [f"--http-server-{what}=x" for what in ("cert", "key")] if "ssl" in protection else []
    with pytest.raises(SettingsError, match=f"{protection.partition('=')[0]} with --engine=triton"):
        told(protection, *more)


def test_its_own_folders_for_caches_and_agents(tmp_path: Path) -> None:
    (tmp_path / "caches").mkdir()
    passed = told(home=tmp_path).flags
    assert f"--cache-directory={tmp_path / 'caches'}" in passed
    assert not [flag for flag in passed if flag.startswith("--repoagent")]


def test_nothing_looks_for_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = {"--allow-gpu-metrics=false", "--pinned-memory-pool-byte-size=0"}
    assert quiet <= set(told().flags)
    monkeypatch.setattr(flags, "has_gpu", lambda: True)
    assert not quiet & set(told().flags)
