"""``bident run MODEL INPUT``: ask a model with what is in a file, or with a text; or talk to a text model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bident.cli import screen, standing
from bident.cli.both import hint, owner
from bident.cli.target import Json, Url, control_mode, cure
from bident.cli.text_server import TextUrl
from bident.errors import Code, ServeError, invalid_arg

if TYPE_CHECKING:
    from bident.cli.card import ModelCard
    from bident.cli.drawing import Drawing
    from bident.cli.picture import PictureOptions
    from bident.cli.question import Question
    from bident.client import Client
    from bident.client.infer import Answer

_PICTURES = "Pictures"
_TEXT = "Text models"


def run(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    model: Annotated[str, typer.Argument(help="Name of the model.", show_default=False)],
    source: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[INPUT]...",
            help="A tensor model's: a picture, .json (a v2 request, values by input name, or a bare list), .csv (rows "
            "are the batch), .npz, .npy, JSON itself, - for JSON on standard input; for one that takes bytes any file "
            "or a text. A text model's: the prompt; without it and without a pipe, a chat.",
            show_default=False,
        ),
    ] = None,
    top: Annotated[int, typer.Option("--top", "-k", help="How many classes to show.", min=1)] = 5,
    version: Annotated[str, typer.Option(help="Version of the model; the newest without it.", show_default=False)] = "",
    mean: Annotated[
        str | None, typer.Option(help="Subtracted after --scale: m or r,g,b.", rich_help_panel=_PICTURES)
    ] = None,
    std: Annotated[
        str | None, typer.Option(help="Divided by after that: s or r,g,b.", rich_help_panel=_PICTURES)
    ] = None,
    scale: Annotated[float | None, typer.Option(help="Factor for pixels 0 to 255.", rich_help_panel=_PICTURES)] = None,
    size: Annotated[
        int | None, typer.Option(help="Pixels, where the model takes any size.", min=1, rich_help_panel=_PICTURES)
    ] = None,
    crop: Annotated[
        str | None, typer.Option(help="center, stretch or pad.", metavar="HOW", rich_help_panel=_PICTURES)
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            help="Draw the boxes that the model answers into a copy of the picture.", rich_help_panel=_PICTURES
        ),
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", "-p", help="A request parameter.", metavar="NAME=VALUE")
    ] = None,
    system: Annotated[str, typer.Option(help="The system message.", rich_help_panel=_TEXT, show_default=False)] = "",
    answer_format: Annotated[
        str, typer.Option("--format", help="json, or a JSON schema or a file of one.", rich_help_panel=_TEXT)
    ] = "",
    think: Annotated[
        str,
        typer.Option(help="true, false, or how much: low, medium, high.", rich_help_panel=_TEXT, show_default=False),
    ] = "",
    keepalive: Annotated[
        str,
        typer.Option(help="How long it stays loaded: 5m, 1h, 0, -1 for ever.", rich_help_panel=_TEXT),
    ] = "",
    verbose: Annotated[bool, typer.Option("--verbose", help="Show rates.", rich_help_panel=_TEXT)] = False,
    url: Url = None,
    text_url: TextUrl = None,
    as_json: Json = False,
) -> None:
    """Ask a model and show the answer; talk to a text model.

    A tensor model is asked with a picture, text, JSON, CSV or numpy file.

    A decoupled model's answers are shown as they come, and Ctrl-C ends them.

    A text model answers the prompt and what is piped in, or talks: /? in the chat explains it.
    """
    from bident.client import TextClient

    client = owner(model, url, text_url)
    if isinstance(client, TextClient):
        from bident.cli.run_text import Wishes, run_text

        wishes = Wishes(system, answer_format, think, keepalive, verbose, as_json)
        run_text(client, model, source or (), wishes)
        return
    from bident.cli.picture import PictureOptions

    options = PictureOptions(mean, std, scale, size, crop)
    asking = _Asking(model, _one_input(model, source or []), version, top, save, tuple(param or ()), as_json)
    _ask_tensor_model(client, asking, options)


@dataclass(frozen=True)
class _Asking:
    """What was asked of a tensor model, and how the answer is wanted."""

    model: str
    source: str
    version: str
    top: int
    save: Path | None
    parameters: tuple[str, ...]
    as_json: bool


def _one_input(model: str, given: list[str]) -> str:
    if len(given) == 1:
        return given[0]
    if not given:
        raise invalid_arg(f"'{model}' is a tensor model: give it an input; 'bident show {model}' says what it takes")
    raise invalid_arg(f"'{model}' is a tensor model and takes one input, not {len(given)}: put quotes around a text")


def _ask_tensor_model(client: Client, asking: _Asking, options: PictureOptions) -> None:
    from bident.cli import question
    from bident.cli.ask import ask, ask_json

    card = _describe(client, asking.model, asking.version)
    asked = question.read(asking.source, card, options)
    asked = asked.with_parameters(list(asking.parameters)).as_sequence(card)
    if card.decoupled:
        _stream(client, card, asked, asking.version, asking.save, asking.as_json)
        return
    drawing = _drawing(asking.source, asking.save)
    if asking.as_json:
        answer = ask_json(client, card, asked, version=asking.version)
        if drawing:
            _draw(drawing, client, card, answer)
        screen.show_json(answer.body)
        return
    from bident.cli.answer import show_answer

    answer = ask(client, card, asked, version=asking.version, top=asking.top)
    for remark in asked.remarks:
        screen.note(remark)
    if card.synthetic:
        screen.note(f"synthetic weights: this answer means nothing ({card.synthetic})")
    show_answer(card, answer, asking.top)
    if drawing:
        screen.show(screen.text(f"{_draw(drawing, client, card, answer)} boxes drawn: {asking.save}"))
    screen.show(f"{asking.model} version {answer.body.get('model_version', '?')}, {answer.seconds * 1000:.1f} ms")


def _stream(client: Client, card: ModelCard, asked: Question, version: str, save: Path | None, as_json: bool) -> None:
    from bident.cli import stream

    if save:
        raise invalid_arg(f"--save draws the boxes of one answer, and model '{card.name}' is decoupled: it gives many")
    for remark in asked.remarks:
        screen.note(remark)
    stream.ask(client, card, asked, version=version, as_json=as_json)


def _drawing(source: str, save: Path | None) -> Drawing | None:
    if save is None:
        return None
    from bident.cli.drawing import Drawing

    return Drawing(source, save)


def _draw(drawing: Drawing, client: Client, card: ModelCard, answer: Answer) -> int:
    """Save what the model has found. Where it answers no boxes, names the ensembles that work on its answer."""
    try:
        return drawing.save(card, answer.tensors)
    except ServeError as error:
        users = _ensembles_with(client, card.name)
        if not users:
            raise
        raise ServeError(error.code, f"{error.message}; ask {' or '.join(users)}, built on this model") from None


def _ensembles_with(client: Client, model: str) -> list[str]:
    """The loaded ensembles that ``model`` is a step of."""
    users = []
    for name in sorted({entry["name"] for entry in client.index() if entry.get("state") == "READY"}):
        try:
            steps = client.config(name).get("ensemble_scheduling", {}).get("step", [])
        except ServeError:  # unloaded between the two questions
            continue
        if any(step.get("model_name") == model for step in steps):
            users.append(f"'{name}'")
    return users


def _describe(client: Client, model: str, version: str) -> ModelCard:
    """The model's card. Where there is none, says which models there are, or how to load this one."""
    from bident.cli.card import ModelCard

    try:
        return ModelCard.fetch(client, model, version)
    except ServeError as error:
        if error.code not in (Code.INVALID_ARG, Code.NOT_FOUND, Code.UNAVAILABLE) or not client.live():
            raise
        entries = client.index()
    state = {entry["name"]: entry for entry in entries}
    ready = sorted({entry["name"] for entry in entries if entry.get("state") == "READY"})
    if model in state:
        reason = standing.gist(str(state[model].get("reason", "")).rstrip("; ")) or "it was never loaded"
        if version and model in ready:
            raise ServeError(Code.NOT_FOUND, f"model '{model}' has no version {version}; see 'bident show {model}'")
        raise ServeError(
            Code.UNAVAILABLE,
            f"model '{model}' is not loaded: {reason}; {_cure(state[model], control_mode(client.url), model)}",
        )
    raise ServeError(
        Code.NOT_FOUND,
        f"there is no model '{model}'{hint(model, ready)} (loaded: {', '.join(ready) or 'none'}; add one with "
        "'bident add FILE')",
    )


def _cure(entry: dict[str, Any], mode: str, model: str) -> str:
    """How a model that is not loaded gets loaded: one that failed must be mended first."""
    failed = entry.get("state") == "UNAVAILABLE" and entry.get("reason") != "unloaded"
    if failed:
        return cure(mode, model)
    if mode == "poll":
        return "it is loaded by itself soon"
    return "'bident restart' loads it" if mode == "none" else f"load it with 'bident load {model}'"
