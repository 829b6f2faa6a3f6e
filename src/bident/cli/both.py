"""Commands that speak to both servers: which of them is asked, and what becomes of one that does not answer."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from bident.cli import screen, target, text_server
from bident.errors import Code, ServeError

if TYPE_CHECKING:
    from bident.client import Client, TextClient

T = TypeVar("T")
U = TypeVar("U")

LATEST = ":latest"
"""The tag that a text model's name has where it is written without one."""


def ask_both(
    url: str | None, text_url: str | None, tensor: Callable[[Client], T], text: Callable[[TextClient], U]
) -> tuple[T | None, U | None]:
    """What each server answers; None of one that is not asked, because only the other one was named.

    A server that fails is said on standard error, and its answer is None too. Raises when none answers.
    """
    answers = _Answers()
    asked_tensor = answers.of("tensor server", lambda: tensor(target.connect(url))) if url or not text_url else None
    asked_text = answers.of("text server", lambda: text(text_server.connect(text_url))) if text_url or not url else None
    answers.settle()
    answers.note()
    return asked_tensor, asked_text


class _Answers:
    """What has failed so far, and whether something has not."""

    def __init__(self) -> None:
        self.errors: dict[str, ServeError] = {}
        self.some = False

    def of(self, server: str, ask: Callable[[], T]) -> T | None:
        try:
            answer = ask()
        except ServeError as error:
            self.errors[server] = error
            return None
        self.some = True
        return answer

    def note(self) -> None:
        """Say what failed."""
        for server, error in self.errors.items():
            screen.note(f"{server}: {error.message}")

    def settle(self) -> None:
        """Raise what failed, where nothing else has been answered."""
        if self.some:
            return
        first, *others = self.errors.items()
        if not others:
            raise first[1]
        raise ServeError(first[1].code, "\n".join(f"{server}: {error.message}" for server, error in (first, *others)))


def owner(model: str, url: str | None, text_url: str | None) -> Client | TextClient:
    """The server that has ``model``: a client of the one or the other.

    Where only one server is named, that is it. A model that neither has is left to the tensor server to refuse,
    if that alone answers. Raises INVALID_ARG where both have one, NOT_FOUND with the nearest name where none has.
    """
    if bool(url) != bool(text_url):
        return target.connect(url) if url else text_server.connect(text_url)
    answers = _Answers()
    tensors = answers.of("tensor server", lambda: _tensor_models(target.connect(url)))
    texts = answers.of("text server", lambda: _text_models(text_server.connect(text_url)))
    answers.settle()
    is_text = texts is not None and tagged(model).lower() in {tagged(name).lower() for name in texts[1]}
    is_tensor = tensors is not None and model in tensors[1]
    if tensors is not None and is_text and is_tensor:
        raise ServeError(
            Code.INVALID_ARG,
            f"'{model}' is a tensor model and a text model: write '{tagged(model)}' for the text model, or name the "
            f"tensor server with --url {tensors[0].url}",
        )
    if texts is not None and is_text:
        return texts[0]
    if tensors is not None and is_tensor:
        return tensors[0]
    answers.note()
    if tensors is not None and texts is None:
        return tensors[0]
    known = [*(tensors[1] if tensors else ()), *((short(name) for name in texts[1]) if texts else ())]
    raise _unknown(model, known)


def _tensor_models(client: Client) -> tuple[Client, list[str]]:
    return client, sorted({entry["name"] for entry in client.index()})


def _text_models(client: TextClient) -> tuple[TextClient, list[str]]:
    return client, sorted(entry["name"] for entry in client.models())


def tagged(model: str) -> str:
    """The name of a text model with its tag."""
    return model if ":" in model.rpartition("/")[2] else model + LATEST


def short(model: str) -> str:
    """The name of a text model as people write it."""
    return model.removesuffix(LATEST)


def hint(word: str, known: Iterable[str]) -> str:
    """Which of ``known`` was probably meant, to be said after the fault; empty where none is near."""
    near = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean '{near[0]}'?" if near else ""


def _unknown(model: str, known: Iterable[str]) -> ServeError:
    names = sorted(set(known))
    return ServeError(
        Code.NOT_FOUND,
        f"there is no model '{model}'{hint(model, names)} (there is {', '.join(names) or 'none'}; add a tensor model "
        "with 'bident add FILE', a text model with 'bident pull NAME')",
    )
