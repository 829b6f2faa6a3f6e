"""``bident run`` of a text model: one answer on standard output, or a conversation."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Bident, Result
from tests.unit.cli.fake_ollama import FakeOllama

Run = Callable[..., Result]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def run(bident: Bident, ollama: FakeOllama, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs ``bident run smollm2 WORDS``; ``piped`` comes through a pipe, where it is given."""

    def run_it(*words: str, piped: str | None = None) -> Result:
        monkeypatch.setattr("sys.stdin", Terminal() if piped is None else io.StringIO(piped))
        return bident("run", "smollm2", *words, "--text-url", ollama.url)

    return run_it


@pytest.fixture
def chat(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """Types lines into a conversation; an exception among them is raised in place of a line."""
    monkeypatch.setattr("bident.cli.chat.lines._HISTORY", tmp_path / "history")

    def type_lines(*lines: str | type[BaseException], words: tuple[str, ...] = ()) -> Result:
        typed = iter(lines)

        def read(prompt: str) -> str:
            line = next(typed, EOFError)
            if isinstance(line, str):
                return line
            raise line

        monkeypatch.setattr("builtins.input", read)
        return run(*words)

    return type_lines


def test_one_answer_and_nothing_else_on_standard_output(run: Run, ollama: FakeOllama) -> None:
    ollama.pieces = [{"thinking": "Hm."}, {"content": "Hello"}, {"content": " you"}]
    result = run("Say", "hello")
    assert (result.code, result.out) == (0, "Hello you\n")
    assert "Hm." in result.err
    (body,) = ollama.bodies("/api/chat")
    assert body == {"model": "smollm2", "messages": [{"role": "user", "content": "Say hello"}], "stream": True}


def test_what_is_piped_in_comes_before_the_prompt(run: Run, ollama: FakeOllama) -> None:
    assert run("Sum it up.", piped="A text.\n").code == 0
    assert run(piped="Hello?").out == "Hello you\n"
    prompts = [body["messages"][-1]["content"] for body in ollama.bodies("/api/chat")]
    assert prompts == ["A text.\n\n\nSum it up.", "Hello?"]
    nothing = run(piped="")
    assert nothing.code == 1
    assert "nothing was asked" in nothing.err


def test_wishes_are_passed_on(run: Run, ollama: FakeOllama) -> None:
    flags = ("--system", "Be brief.", "--format", "json", "--keepalive", "-1", "--think", "false", "--verbose")
    result = run("x", *flags)
    (body,) = ollama.bodies("/api/chat")
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (body["format"], body["keep_alive"], body["think"]) == ("json", -1, False)
    assert "eval rate:            100.00 tokens/s" in result.err
    assert "total duration:       2.500s" in result.err
    assert run("x", "--format", '{"type": "object"}', "--keepalive", "5m").code == 0
    assert ollama.bodies("/api/chat")[-1]["format"] == {"type": "object"}
    assert run("x", "--format", "yaml").code == 1


def test_errors_are_one_line(run: Run, ollama: FakeOllama) -> None:
    ollama.pieces = [{"content": "Hel"}, {"error": "an error was encountered while running the model"}]
    broken = run("x")
    assert (broken.code, broken.out) == (1, "Hel\n")
    assert broken.err == "bident: an error was encountered while running the model\n"
    ollama.refusal = (503, "server busy, please try again.  maximum pending requests exceeded")
    assert "server busy" in run("x").err


def test_what_was_cut_is_said(run: Run, ollama: FakeOllama) -> None:
    ollama.end = {"done_reason": "length"}
    assert run("x").err == "(cut off after 20 tokens)\n"
    ollama.end = {"truncated_tokens": 7}
    assert "the first 7 tokens of the conversation did not fit" in run("x").err


def test_an_embedding_model_gives_its_vector(run: Run, ollama: FakeOllama) -> None:
    ollama.models["smollm2:latest"] = ["embedding"]
    assert run("hello").out == "[0.5, -1.5]\n"
    assert "makes embeddings and does not talk" in run().err


def test_a_conversation_remembers_until_it_is_told_to_forget(chat: Callable[..., Result], ollama: FakeOllama) -> None:
    result = chat("Hi", "Again", "/clear", "Anew", "/bye", "never read")
    assert result.code == 0
    assert result.out.count("Hello you\n") == 3
    said = [[message["content"] for message in body["messages"]] for body in ollama.bodies("/api/chat")]
    assert said == [["Hi"], ["Hi", "Hello you", "Again"], ["Anew"]]


def test_several_lines_within_quotes(chat: Callable[..., Result], ollama: FakeOllama) -> None:
    chat('"""one', "", 'two"""', '/set system """be', 'brief"""', "x")
    first, second = ollama.bodies("/api/chat")
    assert first["messages"][0]["content"] == "one\n\ntwo"
    assert second["messages"][0] == {"role": "system", "content": "be\nbrief"}


def test_settings_are_made_in_the_conversation(chat: Callable[..., Result], ollama: FakeOllama) -> None:
    lines = ("temperature 0", "stop A", 'stop "B C"', "num_ctx x", "nonsense 1")
    result = chat(
        *(f"/set parameter {line}" for line in lines), "/set format json", "/set verbose", "/set", "x", "/nope"
    )
    (body,) = ollama.bodies("/api/chat")
    assert body["options"] == {"temperature": 0, "stop": ["A", "B C"]}
    assert body["format"] == "json"
    assert "eval rate:" in result.err
    for said in ("'num_ctx' must be an integer", "unknown parameter 'nonsense'", "unknown command '/nope'"):
        assert f"Error: {said}" in result.out or said in result.out


def test_show_load_save(chat: Callable[..., Result], ollama: FakeOllama) -> None:
    result = chat("/show", "/show modelfile", "/show nothing", "/load gone", "Hi", "/save mine", "/?")
    for said in ("8192", "FROM smollm2", "there is no '/show nothing'", "model 'gone' not found", "/set "):
        assert said in result.out
    (body,) = ollama.bodies("/api/create")
    assert (body["model"], body["from"]) == ("mine", "smollm2")
    assert [message["content"] for message in body["messages"]] == ["Hi", "Hello you"]


def test_ctrl_c_at_the_prompt_says_how_to_leave_and_ctrl_d_leaves(chat: Callable[..., Result]) -> None:
    result = chat(KeyboardInterrupt, EOFError, "never read")
    assert result.code == 0
    assert "Ctrl-D or /bye leaves." in result.out


def test_an_error_does_not_end_the_conversation(chat: Callable[..., Result], ollama: FakeOllama) -> None:
    ollama.pieces = [{"error": "the model crashed"}]
    result = chat("one", "two")
    assert result.out.count("Error: the model crashed") == 2
    # What failed was not said.
    assert len(ollama.bodies("/api/chat")[-1]["messages"]) == 1


def test_pictures_are_shown_to_models_with_eyes(
    chat: Callable[..., Result], ollama: FakeOllama, tmp_path: Path
) -> None:
    picture = tmp_path / "my cat.PNG"
    picture.write_bytes(b"png")
    escaped = str(picture).replace(" ", r"\ ")
    chat(f"What is this? {escaped}", "/gone.png")
    assert "images" not in ollama.bodies("/api/chat")[0]["messages"][0]
    ollama.models["smollm2:latest"] = ["completion", "vision"]
    chat(f"What is this? {escaped}", f"And '{picture}'?", f"{tmp_path}/gone.png stays")
    first, second, third = (body["messages"][-1] for body in ollama.bodies("/api/chat")[-3:])
    assert first == {"role": "user", "content": "What is this?", "images": [base64.b64encode(b"png").decode()]}
    assert second["content"] == "And ?"
    assert third["content"] == f"{tmp_path}/gone.png stays"
