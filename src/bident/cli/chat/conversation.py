"""The conversation: a line is read, the model answers, until the user has had enough."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from bident.cli.chat import pictures, writing
from bident.cli.chat.commands import Commands, explain
from bident.cli.chat.lines import Lines
from bident.cli.chat.session import VISION
from bident.errors import ServeError

if TYPE_CHECKING:
    from bident.cli.chat.session import Session

_GREETING = "Write a message; /? for help, /bye or Ctrl-D to leave."


def converse(session: Session, lines: Lines | None = None) -> None:
    """Talk until the user leaves. What goes wrong is said, and the conversation goes on."""
    lines = lines or Lines()
    commands = Commands(session, lines)
    print(_GREETING)
    try:
        while _turn(session, lines, commands):
            pass
    finally:
        lines.save()


def _turn(session: Session, lines: Lines, commands: Commands) -> bool:
    """One line and what comes of it; False when the conversation is over."""
    try:
        line = lines.read()
    except KeyboardInterrupt:
        print("\nCtrl-D or /bye leaves.")
        return True
    except EOFError:
        print()
        return False
    try:
        if commands.understands(line):
            return commands.obey(line)
        if line.strip():
            answer(session, line, writing.to_terminal())
            print()
    except KeyboardInterrupt:
        print()
    except EOFError:  # in the middle of several lines
        print()
        return False
    except ServeError as error:
        explain(error)
    return True


def answer(session: Session, text: str, writer: writing.Writer) -> None:
    """Ask, and write the answer. Raises what the server refuses; Ctrl-C ends the answer and is raised."""
    images: list[str] = []
    if VISION in session.capabilities:
        text, images = pictures.extract(text)
    with closing(session.ask(text, images)) as pieces:
        last = writer.write(pieces)
    writer.remark(writing.warn(last))
    if session.verbose:
        writer.remark(writing.figures(last))
