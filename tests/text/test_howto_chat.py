"""docs/how-to/chat.md, typed as a reader does, and a chat in a real terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from text_serving import TextServing

from tests.shell import blocks, own_environment, printed, scripts, typed

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "chat.md"
MODELFILE = next(text for _, text in blocks(PAGE) if text.startswith("FROM "))
BIN = Path(sys.executable).parent

Type = Callable[[str], str]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TextServing]:
    server = TextServing(tmp_path_factory.mktemp("reader"))
    yield server
    assert server.stop() == 0


@pytest.fixture
def types(reader: TextServing, tmp_path: Path) -> Type:
    """What a command prints to somebody who copies it."""

    def type_it(command: str) -> str:
        environment = own_environment(HOME=str(tmp_path), BIDENT_TEXT_URL=reader.url)
        return printed(typed(command.replace("127.0.0.1:11434", f"127.0.0.1:{reader.port}"), tmp_path, environment))

    return type_it


def test_the_page(types: Type, tmp_path: Path) -> None:
    start, pull, run, ollama, openai, make = scripts(PAGE)
    assert start == "bident serve text\n"
    listed = types(pull)
    assert "smollm2" in listed
    assert "minilm" in listed
    answers = types(run)
    assert "[" in answers.splitlines()[-1]
    assert len(json.loads(answers.splitlines()[-1])) == 384
    assert "Paris" in json.loads(types(f"curl --silent {ollama.removeprefix('curl ')}"))["message"]["content"]
    embedded = json.loads(types(f"curl --silent {openai.removeprefix('curl ')}"))
    assert [len(entry["embedding"]) for entry in embedded["data"]] == [384, 384]
    (tmp_path / "Modelfile").write_text(MODELFILE, encoding="utf-8")
    made = types(make)
    assert "Created brief" in made
    assert "SYSTEM" in made


def test_the_samples_answer_right(types: Type) -> None:
    types("bident pull smollm2 minilm")
    rows = json.loads(types("bident zoo check smollm2 minilm --json"))
    assert [(row["model"], row["ok"]) for row in rows] == [("smollm2", True), ("minilm", True)]


@pytest.mark.skipif(sys.platform == "win32", reason="a pseudo-terminal of POSIX")
def test_a_chat_in_a_terminal(reader: TextServing, types: Type, tmp_path: Path) -> None:
    types("bident pull smollm2")
    terminal = Terminal([str(BIN / "bident"), "run", "smollm2", "--text-url", reader.url], tmp_path)
    try:
        terminal.wait_for(">>> ")
        terminal.type("/set parameter temperature 0\n")
        terminal.wait_for("Set.")
        terminal.type("Which city is the capital of France?\n")
        terminal.wait_for("Paris", ">>> ")
        terminal.type("Write a very long story about a king.\n")
        terminal.wait_until(lambda unread: len(unread.rpartition("about a king.")[2].strip()) > 10)
        terminal.type("\x03")  # ends the answer, not the chat
        terminal.wait_for(">>> ")
        terminal.type("\x1b[A\x1b[A\n")  # the arrow keys bring back an earlier line
        terminal.wait_for("Paris", ">>> ")
        terminal.type("\x04")
        assert terminal.end() == 0
    finally:
        terminal.kill()
    history = tmp_path / ".bident" / "history"
    assert "Which city" in history.read_text(encoding="utf-8")
    assert history.stat().st_mode & 0o077 == 0


class Terminal:
    """A program at a pseudo-terminal."""

    def __init__(self, command: list[str], home: Path) -> None:
        import pty

        self._master, theirs = pty.openpty()
        environment = own_environment(HOME=str(home), TERM="xterm")
        self._process = subprocess.Popen(
            command, cwd=home, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509 - no thread runs here
        )  # fmt: skip
        os.close(theirs)
        os.set_blocking(self._master, False)
        self._unread = ""
        self._all = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, *texts: str, seconds: float = 60.0) -> None:
        """Read on until ``texts`` have come, one after the other."""
        for text in texts:
            self.wait_until(lambda unread, text=text: text in unread, seconds)
            self._unread = self._unread.partition(text)[2]

    def wait_until(self, is_right: Callable[[str], bool], seconds: float = 60.0) -> None:
        """Read on until what has come since the last wait ``is_right``."""
        deadline = time.monotonic() + seconds
        while not is_right(self._unread):
            assert time.monotonic() < deadline, self._all
            assert self._process.poll() is None, self._all
            self._read()

    def _read(self) -> None:
        try:
            came = os.read(self._master, 65536).decode("utf-8", "replace")
        except BlockingIOError:
            time.sleep(0.02)
            return
        self._unread += came
        self._all += came

    def end(self) -> int:
        """The exit code, once the program has ended."""
        deadline = time.monotonic() + 20
        while self._process.poll() is None:
            assert time.monotonic() < deadline, self._all
            try:
                self._read()
            except OSError:  # its side is closed
                time.sleep(0.02)
        return self._process.returncode

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)


def _take_terminal() -> None:
    """Make standard input the controlling terminal, whose Ctrl-C is a signal."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
