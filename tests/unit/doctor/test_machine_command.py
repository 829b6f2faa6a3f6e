"""``bident doctor`` as people run it: on a machine with several pitfalls at once, and as its page says."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bident.cli.app import app
from tests.conftest import write_identity
from tests.shell import scripts
from tests.unit.doctor.test_machine_containers import COMPOSE, ENV, SQUID

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "doctor.md"


def _doctor(folder: Path, *words: str, **environ: str) -> tuple[int, list[dict[str, Any]]]:
    command = [sys.executable, "-m", "bident", "doctor", "--json", *words]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environ}, capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, json.loads(done.stdout)["findings"]


def test_many_pitfalls_at_once(tmp_path: Path) -> None:
    (tmp_path / "bident.toml").write_text('[text]\nlog-file = "text.log"\n')
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, found = _doctor(
            tmp_path,
            BIDENT_HTTP_PORT=str(taken.getsockname()[1]),
            BIDENT_GRPC_PROT="1",
            HTTP_PROXY="http://proxy:3128",
            HF_HUB_OFFLINE="1",
            HF_HOME=str(tmp_path),
            LD_LIBRARY_PATH=str(tmp_path / "absent"),
            VIRTUAL_ENV=str(tmp_path),
            TMPDIR=str(tmp_path / "absent"),
            OMP_NUM_THREADS="4096",
        )
    assert code == 1
    named = {"hugging-face-offline", "library-path", "ports", "processor-share", "proxies", "relative-paths"}
    assert named | {"settings", "temporary-folder", "wrong-interpreter"} <= {each["check"] for each in found}


def test_what_a_fix_has_cured_is_no_longer_found(tmp_path: Path) -> None:
    env = tmp_path / ".env"
    env.write_text(f"{ENV}SANDBOX_HTTP_PROXY=\n")
    assert _doctor(tmp_path, str(env))[0] == 1
    code, found = _doctor(tmp_path, str(env), "--fix", "--yes")
    assert (code, [each["check"] for each in found]) == (0, ["dify-empty-proxy"])
    assert "SSRF_PROXY_ALLOW_PRIVATE_DOMAINS=" in env.read_text()


def _commands() -> list[str]:
    return [line.partition(" #")[0].strip() for block in scripts(PAGE) for line in block.splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that the page names."""
    folder = tmp_path_factory.mktemp("page")
    write_identity(folder / "model_repository", "iris")
    (folder / "dify" / "docker").mkdir(parents=True)
    (folder / "dify" / "docker" / ".env").write_text(ENV)
    (folder / "docker-compose.yml").write_text(COMPOSE)
    (folder / "squid.conf").write_text(SQUID)
    return folder


@pytest.mark.parametrize("command", _commands())
def test_commands_of_the_page(folder: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *words = shlex.split(command)
    assert program == "bident"
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(app, words)
    assert done.exit_code in (0, 1), done.output
    assert "checks of" in done.stdout
    assert done.stderr == ""
