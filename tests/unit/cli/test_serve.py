"""``bident serve``: tritonserver's flags and exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from bident.errors import Code, ServeError
from bident.settings import TABLE, TensorSettings
from tests.unit.cli.conftest import Bident


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[TensorSettings]:
    """Stands in for the server: notes the settings, ends with 7."""
    seen: list[TensorSettings] = []

    def run_tensor(settings: TensorSettings) -> int:
        seen.append(settings)
        return 7

    app = ModuleType("bident.app")
    app.run_tensor = run_tensor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bident.app", app)
    return seen


@pytest.mark.parametrize("which", [[], ["tensor"]])
def test_flags_reach_the_server_and_its_exit_code_comes_back(
    bident: Bident, started: list[TensorSettings], which: list[str]
) -> None:
    result = bident("serve", *which, "--model-repository", "r", "--http-port=9", "--exit-on-error", "OFF")
    assert result.code == 7
    assert started[0].model_repository == (Path("r"),)
    assert (started[0].http_port, started[0].exit_on_error) == (9, False)


def test_a_models_folder_is_no_repository(tmp_path: Path) -> None:
    (tmp_path / "shout" / "1").mkdir(parents=True)
    (tmp_path / "shout" / "1" / "model.py").touch()
    command = [sys.executable, "-m", "bident", "serve", "tensor", f"--model-repository={tmp_path / 'shout'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 1
    assert f"{tmp_path / 'shout'}: this looks like a model folder, not a repository: give its parent" in done.stderr


def test_the_file_in_the_working_directory_is_read(bident: Bident, started: list[TensorSettings]) -> None:
    Path("bident.toml").write_text("[tensor]\nmodel-repository = 'here'\n", encoding="utf-8")
    assert bident("serve").code == 7
    assert started[0].model_repository == (Path("here"),)


def test_all_there_is_serves_the_repository_of_the_working_directory(
    bident: Bident, started: list[TensorSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bident("serve").code == 7
    monkeypatch.setenv("BIDENT_MODEL_REPOSITORY", "other")
    assert bident("serve").code == 7
    assert [settings.model_repository for settings in started] == [(Path("model_repository"),), (Path("other"),)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--htp-port=1"], "did you mean '--http-port'?"),
        (["--http-port=x"], 'Bad option: "--http-port"'),
        (["tensor", "stray"], "Unexpected argument: stray"),
        (["tensor"], "--model-repository must be specified"),
        (["--grpc-use-ssl=on"], "--grpc-use-ssl needs --grpc-server-cert and --grpc-server-key"),
        (["--http-address=0.0.0.0"], "--api-key-file"),
        (["text"], "there is no text server yet"),
    ],
)
def test_what_is_wrong_is_1_and_said(
    bident: Bident, started: list[TensorSettings], words: list[str], message: str
) -> None:
    result = bident("serve", *words)
    assert result.code == 1
    assert message in result.err
    assert "Traceback" not in result.err
    assert not started


def test_what_the_server_raises_is_one_line(bident: Bident, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_tensor(settings: TensorSettings) -> int:
        raise ServeError(Code.UNAVAILABLE, "port 1 is taken")

    app = ModuleType("bident.app")
    app.run_tensor = run_tensor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bident.app", app)
    result = bident("serve", "--model-repository=r")
    assert (result.code, result.err) == (1, "bident: port 1 is taken\n")


def test_help_lists_every_flag_with_its_default(bident: Bident) -> None:
    result = bident("serve", "--help")
    assert result.code == 0
    for row in TABLE:
        assert f"  {row.flag}" in result.out
        assert row.help in result.out
    assert "Default: 8000." in result.out
    assert "No effect yet: there is no SageMaker door." in result.out
