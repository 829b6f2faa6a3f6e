"""``bident restart``: what it keeps of the server before, with a stand-in for the server."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from bident.cli.background import check_doors
from bident.errors import ServeError
from bident.local import ports
from bident.local.record import STATE_DIR, Record
from tests.unit.cli.conftest import Bident
from tests.unit.cli.stand_in import flags


def test_flags_that_come_too_late_are_named_and_restart_applies_them(bident: Bident, up: list[str]) -> None:
    Path("second").mkdir()
    assert bident(*up, "--log-verbose=1").code == 0
    first = Record.read(Path(STATE_DIR))
    assert first is not None
    assert "ignored" not in bident(*up).err
    late = bident(*up, "--log-verbose", "2", "--id=x").err
    assert "It runs without --log-verbose=2 --id=x, ignored here" in late
    assert "'bident restart --http-port=0 --metrics-port=0 --log-verbose=2 --id=x' applies" in late

    assert bident("restart").code == 0
    second = Record.read(Path(STATE_DIR))
    assert second is not None
    assert second.pid != first.pid
    assert not first.running()
    assert flags()["--log-verbose"] == "1"

    # What is wrong is said before anything is stopped.
    assert bident("restart", "--htp-port=1").code == 2
    assert second.running()
    result = bident("restart", *up[1:], "--repo", "model_repository", "--repo", "second")
    assert result.code == 0, result.err
    third = Record.read(Path(STATE_DIR))
    assert third is not None
    assert third.flags[:2] == ("--model-repository=model_repository", "--model-repository=second")
    assert "--log-verbose" not in flags()
    assert bident("down").code == 0


def test_a_port_that_nobody_listens_on_any_more_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    port, asked = ports.free_port("127.0.0.1"), iter((True, True))
    monkeypatch.setattr(ports, "taken", lambda address, number: next(asked, False))
    check_doors([("HTTP", "127.0.0.1", port)])
    assert next(asked, None) is None

    monkeypatch.setattr(ports, "taken", lambda address, number: True)
    monkeypatch.setattr("bident.cli.background._LETTING_GO_SECONDS", 0.1)
    with pytest.raises(ServeError, match=rf"port {port} \(HTTP\) is in use\. Stop what holds it"):
        check_doors([("HTTP", "127.0.0.1", port)])


@pytest.mark.parametrize("prefix", ["--", "--text-"])
def test_a_package_that_is_missing_is_said_before_anything_is_stopped(
    bident: Bident, up: list[str], monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    assert bident(*up).code == 0
    running = Record.read(Path(STATE_DIR))
    assert running is not None
    monkeypatch.setattr("bident.observe.span_settings._PACKAGES", ("no_telemetry.sdk",))
    refused = bident("restart", *up[1:], f"{prefix}trace-config=mode=opentelemetry")
    assert refused.code == 1
    assert "needs the package 'no_telemetry.sdk'" in refused.err
    assert running.running()
    assert bident("down").code == 0


def test_restart_keeps_what_the_environment_said(
    bident: Bident, up: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, metrics, other = (str(ports.free_port("127.0.0.1")) for _ in range(3))
    monkeypatch.setenv("BIDENT_HTTP_PORT", port)
    monkeypatch.setenv("BIDENT_METRICS_PORT", metrics)
    monkeypatch.setenv("BIDENT_LOG_VERBOSE", "1")
    assert bident("up", "--id=x").code == 0
    monkeypatch.delenv("BIDENT_HTTP_PORT")
    monkeypatch.delenv("BIDENT_METRICS_PORT")
    monkeypatch.delenv("BIDENT_LOG_VERBOSE")

    kept = bident("restart")
    assert kept.code == 0, kept.err
    assert "another one than before" not in kept.err
    record = Record.read(Path(STATE_DIR))
    assert record is not None
    assert (record.url, record.metrics_url) == (f"http://127.0.0.1:{port}", f"http://127.0.0.1:{metrics}")
    assert psutil.Process(record.pid).environ()["BIDENT_LOG_VERBOSE"] == "1"
    assert flags()["--id"] == "x"

    # What is given now wins, and a new address is said.
    monkeypatch.setenv("BIDENT_HTTP_PORT", other)
    ignored = bident("up").err
    assert f"It runs without BIDENT_HTTP_PORT={other}, ignored here: 'bident restart' applies that." in ignored
    moved = bident("restart", "--id=y")
    assert flags()["--http-port"] == other
    assert flags()["--metrics-port"] == metrics
    assert f"http://127.0.0.1:{other}, and it was http://127.0.0.1:{port} (BIDENT_HTTP_PORT={port})" in moved.err
    assert bident("restart", f"--http-port={port}").code == 0
    assert flags()["--http-port"] == port
    # The environment says the same as before: the flag goes before it.
    assert bident("restart").code == 0
    assert flags()["--http-port"] == port
    # It says something new now, which is meant more than a flag of an earlier day.
    monkeypatch.setenv("BIDENT_HTTP_PORT", str(ports.free_port("127.0.0.1")))
    assert bident("restart").code == 0
    assert flags()["--http-port"] == os.environ["BIDENT_HTTP_PORT"]
    assert bident("down").code == 0


def test_up_after_down_says_that_the_address_was_another_one(
    bident: Bident, up: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = str(ports.free_port("127.0.0.1"))
    monkeypatch.setenv("BIDENT_HTTP_PORT", port)
    assert bident("up", "--metrics-port=0").code == 0
    assert bident("down").code == 0
    monkeypatch.delenv("BIDENT_HTTP_PORT")
    assert f"it was http://127.0.0.1:{port} (BIDENT_HTTP_PORT={port})" in bident(*up).err
    assert bident("down").code == 0
