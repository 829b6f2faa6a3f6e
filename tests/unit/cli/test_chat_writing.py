"""How an answer is written: on a terminal, and elsewhere."""

from __future__ import annotations

import io

import pytest

from bident.cli.chat.writing import Writer


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def pieces(*messages: dict[str, str]) -> list[dict[str, object]]:
    return [{"message": message} for message in messages]


def test_thoughts_are_dim_on_a_terminal() -> None:
    screen = Terminal()
    Writer(screen, screen, screen).write(pieces({"thinking": "Hm"}, {"thinking": "m."}, {"content": "Yes."}))
    assert screen.getvalue() == "\x1b[2mHmm.\x1b[0m\n\nYes.\n"


def test_a_terminal_does_not_obey_the_model() -> None:
    screen, pipe = Terminal(), io.StringIO()
    Writer(screen, screen, screen).write(pieces({"content": "\x1b]0;evil\x07\ttab\n"}))
    assert screen.getvalue() == "\\u001b]0;evil\\u0007\ttab\n"
    Writer(pipe, pipe, pipe).write(pieces({"content": "\x1b[1m"}))
    assert pipe.getvalue() == "\x1b[1m\n"


def test_half_a_surrogate_pair_does_not_end_the_answer() -> None:
    pipe = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    Writer(pipe, pipe, pipe).write(pieces({"content": "\ud83d é"}))
    assert pipe.buffer.getvalue() == b"? ?\n"  # type: ignore[attr-defined]


def test_the_line_is_ended_when_an_answer_is_broken_off() -> None:
    def broken():  # type: ignore[no-untyped-def]
        yield {"message": {"content": "Hel"}}
        raise KeyboardInterrupt

    screen = Terminal()
    with pytest.raises(KeyboardInterrupt):
        Writer(screen, screen, screen).write(broken())
    assert screen.getvalue() == "Hel\n"
