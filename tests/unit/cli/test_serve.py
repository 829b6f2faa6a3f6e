"""``bident serve``: tritonserver's flags and exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from bident.errors import Code, ServeError
from bident.servers import ServerStart
from bident.settings import TABLE, TEXT_TABLE, TensorSettings
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


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> list[ServerStart]:
    """Stands in for what keeps both servers running: notes what it is to start, ends with 7."""
    seen: list[ServerStart] = []

    def run_servers(starts: list[ServerStart]) -> int:
        seen.extend(starts)
        return 7

    monkeypatch.setattr("bident.servers.run_servers", run_servers)
    return seen


def test_flags_reach_the_server_and_its_exit_code_comes_back(bident: Bident, started: list[TensorSettings]) -> None:
    result = bident("serve", "tensor", "--model-repository", "r", "--http-port=9", "--exit-on-error", "OFF")
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
    assert bident("serve", "tensor").code == 7
    assert started[0].model_repository == (Path("here"),)


def test_all_there_is_serves_the_repository_of_the_working_directory(
    bident: Bident, both: list[ServerStart], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bident("serve", "--text-port=5", "--http-port", "6").code == 7
    assert [start.command[3:] for start in both] == [
        ["serve", "tensor", "--http-port", "6", "--model-repository=model_repository"],
        ["serve", "text", "--port=5"],
    ]
    monkeypatch.setenv("BIDENT_MODEL_REPOSITORY", "other")
    assert bident("serve").code == 7
    assert both[2].command[3:] == ["serve", "tensor"]
    monkeypatch.delenv("BIDENT_MODEL_REPOSITORY")
    assert bident("serve", "--model-repository=model_repository").code == 7
    assert both[4].command[3:] == ["serve", "tensor", "--model-repository=model_repository"]


def test_one_config_file_is_for_both_servers(bident: Bident, both: list[ServerStart]) -> None:
    Path("my.toml").write_text("[text]\nexit-timeout-secs = 7\n[tensor]\nexit-timeout-secs = 8\n", encoding="utf-8")
    assert bident("serve", "--config-file=my.toml").code == 7
    assert [start.exit_timeout_secs for start in both] == [8, 7]
    assert "--config-file=my.toml" in both[1].command


def test_without_the_text_engines_package_the_tensor_server_is_alone(
    bident: Bident, both: list[ServerStart], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bident.cli.text_server.find_spec", lambda name: None)
    result = bident("serve")
    assert [start.name for start in both] == ["tensor"]
    assert result.err.count("\n") == 1
    assert (
        "no text server is started: the text engine's package, xllamacpp, is not installed: pip install" in result.err
    )
    # Where somebody else answers for text models, no engine is needed.
    both.clear()
    assert bident("serve", "--text-upstream=openai:http://127.0.0.1:9/v1").err == ""
    assert [start.name for start in both] == ["tensor", "text"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--htp-port=1"], "did you mean '--http-port'?"),
        (["--http-port=x"], 'Bad option: "--http-port"'),
        (["tensor", "stray"], "Unexpected argument: stray"),
        (["tensor"], "--model-repository must be specified"),
        (["--grpc-use-ssl=on"], "--grpc-use-ssl needs --grpc-server-cert and --grpc-server-key"),
        (["--http-address=0.0.0.0"], "--api-key-file"),
        (["text", "--prot=1"], "did you mean '--port'?"),
        (["--text-prot=1"], "did you mean '--port'?; here its flags begin with --text-"),
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
    result = bident("serve", "tensor", "--model-repository=r")
    assert (result.code, result.err) == (1, "bident: port 1 is taken\n")


def test_help_lists_every_flag_with_its_default(bident: Bident) -> None:
    result = bident("serve", "--help")
    assert result.code == 0
    for row in (*TABLE, *TEXT_TABLE):
        assert row.help in result.out
    assert all(f"  {row.flag}" in result.out for row in TABLE)
    assert all(f"  --text-{row.key}" in result.out for row in TEXT_TABLE)
    assert "  --port" in bident("serve", "text", "--help").out
    assert "Default: 8000." in result.out
    assert "No effect yet: there is no SageMaker door." in result.out
