"""The command line as a whole: its front page, its speed, its exit codes."""

from __future__ import annotations

import inspect
import subprocess
import sys
import time

import pytest

from bident import __version__
from bident.cli.app import app
from tests.unit.cli.conftest import Bident, FakeServer
from tests.unit.cli.test_models import pending, statistics

HEAVY = ("numpy", "httpx", "onnxruntime", "google.protobuf", "rich.markdown", "bident.settings.tensor")


def test_the_front_page_names_every_command(bident: Bident) -> None:
    result = bident("--help")
    assert result.code == 0
    for command in app.registered_commands:
        name = command.name or command.callback.__name__  # type: ignore[union-attr]
        assert f"\n  {name} " in result.out, name
    assert "Two minutes" in result.out
    assert bident().out == result.out


def test_each_paragraph_of_help_is_one_line() -> None:
    """Typer keeps the line ends of all but the first, which then break lines where the terminal does not."""
    groups = [app, *(group.typer_instance for group in app.registered_groups)]
    for command in (command for group in groups if group for command in group.registered_commands):
        _, *more = inspect.getdoc(command.callback).split("\n\n")  # type: ignore[union-attr]
        assert [paragraph for paragraph in more if "\n" in paragraph] == []


def test_the_front_page_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom bident.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_serve_does_not_import_the_command_line() -> None:
    script = "import sys, bident.cli.serve\nprint([name for name in ('typer', 'rich', 'numpy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_is_quick() -> None:
    times = []
    for _ in range(3):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "bident", "--help"], capture_output=True, check=True)
        times.append(time.perf_counter() - started)
    # 0.3 s is the aim on an idle machine; this fails when something heavy creeps in, not when tests run beside it.
    assert min(times) < 0.9


def test_version(bident: Bident) -> None:
    assert bident("--version").out == bident("version").out == f"bident {__version__}\n"


def test_help_is_a_command_too(bident: Bident) -> None:
    assert bident("help").out == bident("--help").out
    assert bident("help", "ls").out == bident("ls", "--help").out
    assert bident("help", "serve").out == bident("serve", "--help").out
    assert bident("help", "nope").code == 2


@pytest.mark.parametrize("words", [["nope"], ["run"], ["ls", "--nope"], ["run", "a", "b", "--top=0"]])
def test_a_wrong_command_line_is_2(bident: Bident, words: list[str]) -> None:
    result = bident(*words)
    assert result.code == 2
    assert "Traceback" not in result.err


def test_the_shell_completes_commands(bident: Bident, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_BIDENT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "bident st")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert bident().out == "status\nstop\n"


def test_nobody_at_home_is_one_line_with_the_cure(bident: Bident) -> None:
    result = bident("ls", "--url", "http://127.0.0.1:9")
    assert result.code == 1
    assert result.err.count("\n") == 1
    assert "no server answers at http://127.0.0.1:9" in result.err
    assert "bident up" in result.err


@pytest.mark.parametrize("url", ["ftp://x", "http://", "127.0.0.1:notaport"])
def test_a_url_that_is_none(bident: Bident, url: str) -> None:
    result = bident("ls", "--url", url)
    assert result.code == 2
    assert "http://127.0.0.1:8000" in result.err


def test_the_url_comes_from_the_environment(
    bident: Bident, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIDENT_URL", server.url)
    assert "iris" in bident("ls").out


def test_the_port_comes_from_the_environment(
    bident: Bident, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIDENT_HTTP_PORT", str(server.port))
    result = bident("ls")
    assert "iris" in result.out
    assert result.err.startswith(f"using {server.url} (BIDENT_HTTP_PORT, not started from this folder)\n")
    # An address that stands for every network is reached over this machine's own.
    monkeypatch.setenv("BIDENT_HTTP_ADDRESS", "0.0.0.0")
    assert "iris" in bident("ls").out
    monkeypatch.setenv("BIDENT_METRICS_PORT", str(server.port))
    server.stats, server.metrics = [statistics("iris", 4)], pending("iris", 7)
    assert " 7 " in bident("ps").out
    # What is said in so many words goes before it.
    monkeypatch.setenv("BIDENT_HTTP_PORT", "9")
    assert "iris" in bident("ls", "--url", server.url).out
    monkeypatch.setenv("BIDENT_HTTP_PORT", "eight")
    result = bident("ls")
    assert (result.code, "BIDENT_HTTP_PORT is 'eight'" in result.err) == (2, True)


def test_headers_are_sent_with_every_request(
    bident: Bident, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIDENT_HEADERS", "")  # what the command leaves there is taken back after the test
    result = bident("--header", "admin: a;b c", "--header", "X-Team:blue", "ls", "--url", server.url)
    assert result.code == 0, result.err
    assert server.headers["admin"] == "a;b c"
    assert server.headers["x-team"] == "blue"


@pytest.mark.parametrize("header", ["admin", "ad min: x", ": x", "admin: é"])
def test_what_cannot_be_sent_as_a_header_is_refused(
    bident: Bident, monkeypatch: pytest.MonkeyPatch, header: str
) -> None:
    monkeypatch.setenv("BIDENT_HEADERS", "")
    result = bident("--header", header, "ls")
    assert result.code == 2
    assert "is no header that can be sent" in result.err
    monkeypatch.setenv("BIDENT_HEADERS", header)
    result = bident("ls")
    assert result.code == 1
    assert "is no header that can be sent" in result.err


def test_a_restricted_api_says_how_commands_send_the_header(bident: Bident, server: FakeServer) -> None:
    server.refusal = 403, "This API is restricted, expecting header 'admin'"
    assert "expecting header 'admin'; commands send it with bident --header" in bident("ls", "--url", server.url).err


def test_commands_of_the_zoo_are_reached(bident: Bident) -> None:
    result = bident("zoo", "--help")
    assert result.code == 0
    assert "build" in result.out
