"""``bident run`` where the model is a text model."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bident.cli import screen
from bident.errors import invalid_arg

if TYPE_CHECKING:
    from bident.client import TextClient

_WORDS: dict[str, bool | str] = {"true": True, "false": False}


@dataclass(frozen=True)
class Wishes:
    """How the answer is wanted, as the command line has it; what was not said is empty or None."""

    system: str = ""
    format: str = ""
    think: str = ""
    keepalive: str = ""
    verbose: bool = False
    as_json: bool = False


def run_text(client: TextClient, model: str, words: Sequence[str], wishes: Wishes) -> None:
    """Answer ``words`` and what is piped in once, or talk where there is neither.

    Raises what the server refuses.
    """
    from bident.cli.chat.conversation import answer, converse
    from bident.cli.chat.writing import to_standard_output

    capabilities = frozenset(client.show(model).get("capabilities") or ())
    session = _session(client, model, capabilities, wishes)
    prompt = _prompt(words)
    if prompt is None:
        if "completion" not in capabilities and "embedding" in capabilities:
            raise invalid_arg(f"'{model}' makes embeddings and does not talk: give it a text")
        converse(session)
    elif not prompt.strip():
        raise invalid_arg("nothing was asked: standard input and the prompt are empty")
    elif "completion" not in capabilities and "embedding" in capabilities:
        screen.show_compact(session.embed(prompt))
    elif wishes.as_json:
        for piece in session.ask(prompt, []):
            screen.show_compact(piece)
    else:
        answer(session, prompt, to_standard_output())


def _session(client: TextClient, model: str, capabilities: frozenset[str], wishes: Wishes) -> Any:
    from bident.cli.chat.commands import parse_format
    from bident.cli.chat.session import Session

    return Session(
        client,
        model,
        capabilities,
        system=wishes.system,
        format=parse_format(wishes.format) if wishes.format else None,
        think=_WORDS.get(wishes.think, wishes.think) if wishes.think else None,
        keep_alive=_keep_alive(wishes.keepalive),
        verbose=wishes.verbose,
    )


def _keep_alive(text: str) -> str | float | None:
    """A number is seconds, which the API takes only as a number."""
    try:
        return float(text)
    except ValueError:
        return text or None


def _prompt(words: Sequence[str]) -> str | None:
    """What is asked: what comes through a pipe, then the words of the command line. None to talk instead."""
    parts = [" ".join(words)] if words else []
    if sys.stdin is not None and not sys.stdin.isatty():
        parts.insert(0, sys.stdin.read())
    elif not words:
        return None
    return "\n\n".join(part for part in parts if part.strip())
