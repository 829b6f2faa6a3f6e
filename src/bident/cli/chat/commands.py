"""What can be typed in a chat besides a message: lines that begin with a slash, as in ``ollama run``."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bident.cli import screen
from bident.errors import ServeError, invalid_arg

if TYPE_CHECKING:
    from bident.cli.chat.lines import Lines
    from bident.cli.chat.session import Session

_HELP = '''\
  /set          Set what the next answers depend on; alone it lists what there is
  /show         Show the model: info, license, modelfile, parameters, system, template
  /load NAME    Talk to another model, from the start
  /save NAME    Make a model of this one with what has been set and said
  /clear        Forget what has been said
  /bye          Leave; so does Ctrl-D
  /help, /?     Show this

Begin a message of several lines with """ and end it with """.
Ctrl-C ends an answer.'''
_PICTURES = "Write the path of a picture (.png .jpg .webp) in your message and the model sees it."
_SETTINGS = """\
  /set parameter NAME VALUE  Such as temperature 0.2, num_ctx 8192, seed 1, num_predict 100, stop "END"
  /set system TEXT           The system message
  /set format json           Answers are JSON;          /set noformat    or anything
  /set think [LEVEL]         The model thinks first;    /set nothink     or answers at once
  /set verbose               Show rates after answers;  /set quiet       or do not
  /set history               Keep what is typed here;   /set nohistory   or do not"""
_SHOWN = ("license", "modelfile", "parameters", "system", "template")


class Commands:
    """Obeys such lines. Raises ServeError for what cannot be done, and for what is no command."""

    def __init__(self, session: Session, lines: Lines) -> None:
        self._session = session
        self._lines = lines
        self._verbs: dict[str, Callable[[str], bool]] = {
            "/bye": self._leave,
            "/exit": self._leave,
            "/help": self._help,
            "/?": self._help,
            "/clear": self._clear,
            "/set": self._set,
            "/show": self._show,
            "/load": self._load,
            "/save": self._save,
        }

    def understands(self, line: str) -> bool:
        """Whether it is a command: a message may begin with the path of a file."""
        first = line.split(None, 1)[0] if line.strip() else ""
        return first.startswith("/") and (first in self._verbs or "/" not in first[1:])

    def obey(self, line: str) -> bool:
        """Do what ``line`` says; False when the conversation is over."""
        verb, rest = _split(line)
        if verb not in self._verbs:
            raise invalid_arg(f"unknown command '{verb}'; /help lists them")
        return self._verbs[verb](rest)

    @staticmethod
    def _leave(_: str) -> bool:
        return False

    def _help(self, _: str) -> bool:
        from bident.cli.chat.session import VISION

        print(_HELP)
        if VISION in self._session.capabilities:
            print(_PICTURES)
        return True

    def _clear(self, _: str) -> bool:
        self._session.forget()
        print("Forgotten.")
        return True

    def _show(self, what: str) -> bool:
        from bident.cli import text_models

        session = self._session
        if what in ("", "info"):
            text_models.show_card(session.client, session.model, modelfile=False, as_json=False)
            return True
        if what not in _SHOWN:
            raise invalid_arg(f"there is no '/show {what}'; show info, {', '.join(_SHOWN)}")
        if what == "parameters" and session.options:
            print("\n".join(f"{name} {json.dumps(value)}    (set here)" for name, value in session.options.items()))
        said = session.system if what == "system" and session.system else ""
        print(said or str(session.client.show(session.model).get(what) or f"The model has no {what}."))
        return True

    def _load(self, name: str) -> bool:
        if not name:
            raise invalid_arg("name the model, as in /load smollm2")
        card = self._session.client.show(name)
        self._session.model, self._session.capabilities = name, frozenset(card.get("capabilities") or ())
        self._session.forget()
        print(f"Now it is {name}.")
        return True

    def _save(self, name: str) -> bool:
        session = self._session
        if not name:
            raise invalid_arg("name the model that this becomes, as in /save pirate")
        body: dict[str, Any] = {"model": name, "from": session.model, "parameters": session.options}
        body |= {"system": session.system} if session.system else {}
        body |= {"messages": session.messages} if session.messages else {}
        for _ in session.client.stream("/api/create", body):
            pass
        print(f"Saved: bident run {name}")
        return True

    def _set(self, line: str) -> bool:
        what, value = _split(line)
        session = self._session
        switches: dict[str, tuple[str, Any]] = {
            "verbose": ("verbose", True),
            "quiet": ("verbose", False),
            "think": ("think", value or True),
            "nothink": ("think", False),
            "noformat": ("format", None),
        }
        if what in switches:
            setattr(session, *switches[what])
        elif what in ("history", "nohistory"):
            self._lines.keeps_history = what == "history"
        elif what == "system":
            session.system = _unquoted(self._lines.go_on(value))
        elif what == "format":
            session.format = parse_format(value)
        elif what == "parameter":
            self._set_parameter(*_split(value))
        else:
            print(_SETTINGS if not what else f"There is no '/set {what}':\n{_SETTINGS}")
            return True
        print("Set.")
        return True

    def _set_parameter(self, name: str, text: str) -> None:
        from bident.text import parameters

        if not text:
            raise invalid_arg("name a parameter and its value, as in /set parameter temperature 0.2")
        value = parameters.from_text(name, _unquoted(text))
        is_list = name in parameters.LISTS
        self._session.options[name] = [*self._session.options.get(name, []), value] if is_list else value


def parse_format(text: str) -> Any:
    """What ``--format`` says: ``json``, or a JSON schema, written out or the name of a file of it.

    Raises INVALID_ARG for anything else.
    """
    from pathlib import Path

    if text == "json":
        return text
    try:
        written = text if text.lstrip().startswith("{") else Path(text).read_text(encoding="utf-8")
        schema = json.loads(written)
    except (OSError, ValueError):
        schema = None
    if not isinstance(schema, dict):
        raise invalid_arg(f"'{screen.text(text[:80])}' is no format: give json, a JSON schema, or a file of one")
    return schema


def _split(line: str) -> tuple[str, str]:
    first, _, rest = line.strip().partition(" ")
    return first, rest.strip()


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def explain(error: ServeError) -> None:
    """Say what went wrong; the conversation goes on."""
    print(f"Error: {error.message}")
