"""``bident connect``: the configuration that a neighbour needs, and whether it works."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bident.cli import screen, target, text_server
from bident.cli.both import hint, short, tagged
from bident.cli.target import Json, Url
from bident.cli.text_server import TextUrl
from bident.errors import Code, ServeError, invalid_arg

if TYPE_CHECKING:
    from bident.client import Client, TextClient
    from bident.connect.neighbour import File, Neighbour, Wanted
    from bident.connect.site import Site

_HOP_WIDTH = 34


def connect(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The neighbour; without one, all are listed.")
    ] = None,
    models: Annotated[
        list[str] | None, typer.Argument(metavar="[MODEL]...", help="Only for these models, instead of all.")
    ] = None,
    write: Annotated[
        Path | None, typer.Option(help="Write the files into this folder.", metavar="DIR", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files there that say something else.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Try the way there, hop by hop.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A choice that this neighbour has; repeat it for several.", metavar="NAME=VALUE"),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            help="The name of this machine where the neighbour runs, as host.docker.internal in a container.",
            show_default=False,
        ),
    ] = None,
    url: Url = None,
    text_url: TextUrl = None,
    as_json: Json = False,
) -> None:
    """Configure another system for the models that are served now, and check that it reaches them.

    Prints the files and, on standard error, what to do with them.

    --check ends with 1 at the first hop that does not work, and says what to do about it.
    """
    from bident.connect.registry import neighbour

    if name is None:
        if write is not None or force or check or settings or host:
            raise invalid_arg("which neighbour? as in 'bident connect litellm --check'; 'bident connect' lists all")
        _list(as_json)
        return
    chosen = neighbour(name)
    options = _options(chosen, settings or [])
    site = _survey(url, text_url, host)
    wanted = _wanted(site, models or [], options)
    if check:
        _check(chosen, site, wanted, as_json)
        return
    files, steps = chosen.files(site, wanted), chosen.steps(site, wanted)
    if write is not None:
        _write(files, write, force)
    if as_json:
        screen.show_json({"files": [asdict(file) for file in files], "steps": steps})
        return
    if write is None:
        _print(files)
    for number, step in enumerate(steps, 1):
        screen.note(f"{number}. {step}")


def _list(as_json: bool) -> None:
    """Every neighbour, and what it may be told."""
    from bident.connect.registry import NEIGHBOURS, neighbour

    all_of_them = [neighbour(name) for name in NEIGHBOURS]
    if as_json:
        screen.show_json([{"name": n.name, "summary": n.summary, "options": dict(n.options)} for n in all_of_them])
        return
    table = screen.table("neighbour", "what for", "--set")
    for each in all_of_them:
        choices = "\n".join(f"{name}: {about}" for name, about in each.options.items())
        table.add_row(each.name, screen.text(each.summary), screen.text(choices))
    screen.show(table)
    screen.note("'bident connect NAME' prints what it needs, --write DIR writes it, --check tries it.")


def _options(chosen: Neighbour, settings: list[str]) -> dict[str, str]:
    """The values of ``--set``. Raises INVALID_ARG for what ``chosen`` does not know."""
    options: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise invalid_arg(f"--set {setting}: it is written NAME=VALUE")
        if name not in chosen.options:
            near = hint(name, chosen.options)
            known = ", ".join(chosen.options) or "nothing"
            raise invalid_arg(f"--set {setting}: {chosen.name} has no choice '{name}'{near} (it has {known})")
        options[name] = value
    return options


def _survey(url: str | None, text_url: str | None, host: str | None) -> Site:
    """What both servers have; only one of them where only that was named. Raises UNAVAILABLE where none answers."""
    from bident.connect.site import survey

    if host is not None and (not host or any(sign in host for sign in "/ \t\n@?#")):
        raise invalid_arg(f"--host '{host}': it is a name or an address alone, as host.docker.internal")
    tensor: Client | None = None
    text: TextClient | None = None
    if url or not text_url:
        try:
            tensor = target.connect(url)
        except ServeError as error:
            screen.note(f"tensor server: {error.message}")
    if text_url or not url:
        text = text_server.connect(text_url)
    site = survey(tensor, target.metrics_url(tensor) if tensor else None, text, host=host)
    for server, client, answers in (("tensor", tensor, site.tensor), ("text", text, site.text)):
        if client is not None and answers is None:
            screen.note(f"the {server} server does not answer at {client.url}: what follows leaves it out")
    return site


def _wanted(site: Site, models: list[str], options: dict[str, str]) -> Wanted:
    """``models`` by the names that the servers have for them. Raises NOT_FOUND."""
    from bident.connect.neighbour import Wanted

    known = {model.name: model.name for model in site.models}
    texts = {model.name.lower(): model.name for model in site.text_models}
    found: list[str] = []
    for model in models:
        names = [name for name in (known.get(model), texts.get(tagged(model).lower())) if name]
        if not names:
            every = sorted({*known, *texts.values()})
            near = hint(model, map(short, every))
            there = ", ".join(every) or "none"
            raise ServeError(Code.NOT_FOUND, f"no model '{model}' is served{near} (there is {there})")
        found += [name for name in names if name not in found]
    return Wanted(tuple(found), options)


def _check(chosen: Neighbour, site: Site, wanted: Wanted, as_json: bool) -> None:
    """Show each hop when it has been tried; exit 1 at one that does not work."""
    hops: list[dict[str, Any]] = []
    tried = chosen.check(site, wanted)
    works = True
    while works:
        with screen.console(stderr=True).status(f"Trying {chosen.name}"):
            hop = next(tried, None)
        if hop is None:
            break
        works = hop.works
        hops.append(asdict(hop))
        if not as_json:
            sign = "[green]ok[/]  " if works else "[red]fail[/]"
            screen.show(f"{sign} {screen.text(hop.name):<{_HOP_WIDTH}} {screen.text(hop.seen)}")
            if not works and hop.cure:
                screen.show(f"     [bold]cure:[/] {screen.text(hop.cure)}")
    if as_json:
        screen.show_json({"works": works, "hops": hops})
    if not works:
        raise typer.Exit(1)


def _print(files: list[File]) -> None:
    """The files on standard output, each with its head; one alone without, so that it can be piped."""
    alone = len(files) == 1
    for file in files:
        head = f"# {file.path}: {file.about}"
        if alone:
            screen.note(head)
        else:
            print(head)
        print(file.text, end="" if file.text.endswith("\n") else "\n", flush=True)


def _write(files: list[File], folder: Path, force: bool) -> None:
    """Write ``files`` into ``folder``, and say so. Raises as ``write_files``."""
    from bident.connect.writing import write_files

    for path, is_new in write_files(files, folder, force=force):
        screen.note(f"{path}: {'written' if is_new else 'is as it should be'}")
