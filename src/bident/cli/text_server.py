"""Where the text server is or would be, and whether there is one at all."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bident.errors import ServeError
from bident.local.record import STATE_DIR, Record

if TYPE_CHECKING:
    from bident.client import TextClient
    from bident.settings import TextSettings

DEFAULT_URL = "http://127.0.0.1:11434"
_ENGINE = "xllamacpp"
_PROBE_SECONDS = 2.0

TextUrl = Annotated[
    str | None,
    typer.Option(
        "--text-url",
        envvar="BIDENT_TEXT_URL",
        help="The text server; without it, the one that 'bident up' started here, the one at OLLAMA_HOST or "
        f"BIDENT_TEXT_PORT, or {DEFAULT_URL}.",
        show_default=False,
    ),
]


def connect(url: str | None) -> TextClient:
    """A client of ``url``, else of the server that ``bident up`` started in this folder, else of the default.

    The default is where ``bident up`` would start a server by the environment.
    """
    from bident.client import TextClient

    if url:
        try:
            return TextClient(url)
        except ServeError as error:
            raise typer.BadParameter(error.message) from None
    record = Record.read(Path(STATE_DIR))
    if record is not None and record.text_url and record.running():
        return record.text_client()
    return TextClient(default_url())


def default_url() -> str:
    """Where a text server started elsewhere should be, by this environment. Raises BadParameter for no address."""
    from bident.errors import SettingsError
    from bident.local import ports
    from bident.settings import parse_text_args

    # A client may name any address: whether it is a safe one to listen on is not its business.
    named = {name: text for name in ("BIDENT_TEXT_HOST", "BIDENT_TEXT_PORT", "OLLAMA_HOST") if (text := _given(name))}
    if not named:
        return DEFAULT_URL
    try:
        settings = parse_text_args(["--insecure"], named)
    except SettingsError as error:
        raise typer.BadParameter(error.message) from None
    is_encrypted = named.get("BIDENT_TEXT_HOST", named.get("OLLAMA_HOST", "")).strip("\"' ").startswith("https://")
    scheme = "https" if is_encrypted else "http"
    return f"{scheme}://{ports.local(settings.host.host)}:{settings.port}"


def _given(name: str) -> str:
    return os.environ.get(name, "")


def url_of(settings: TextSettings, *, is_ollamas: bool = False) -> str:
    """Where a server with ``settings``, or the Ollama in its place, is reached from this machine."""
    from bident.local import ports

    scheme = "https" if settings.is_encrypted and not is_ollamas else "http"
    return f"{scheme}://{ports.local(settings.host.host)}:{settings.port}"


def absence(settings: TextSettings) -> str:
    """Why no text server is to be started with ``settings``; empty where one is."""
    if settings.upstream[-1].kind not in ("auto", "none"):
        return ""  # somebody else answers: no engine is needed
    if find_spec(_ENGINE) is None:
        return f"the text engine's package, {_ENGINE}, is not installed: pip install 'bident[text]'"
    return ""


def stands_by(settings: TextSettings) -> bool:
    """Whether a real Ollama has the port, so that a text server with ``settings`` uses it and waits for it to go."""
    from bident.client import Credentials, TextClient
    from bident.local import ports
    from bident.settings.text import DEFAULT_PORT

    is_ollamas = settings.upstream[-1].kind == "auto" and settings.port == DEFAULT_PORT
    if not is_ollamas or not ports.taken(settings.host.host, DEFAULT_PORT):
        return False
    return TextClient(url_of(settings, is_ollamas=True), _PROBE_SECONDS, Credentials()).is_real_ollama()
