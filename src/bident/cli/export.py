"""``bident export``: what serves here, described for other places."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer

from bident.cli import screen

app = typer.Typer(help="Describe what serves here for another place to serve it.", no_args_is_help=True)

_BYTES = re.compile(r"\d+(?:\.\d+)?[bkmg]b?", re.IGNORECASE)
_NETWORK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_NO_NETWORK = "none"


def _networks(names: list[str] | None) -> list[str] | None:
    for name in names or ():
        if not _NETWORK.fullmatch(name):
            raise typer.BadParameter(f"'{name}' is no name of a network: letters, digits, '_', '.' and '-'")
    return names


def _size(text: str) -> str:
    if not _BYTES.fullmatch(text):
        raise typer.BadParameter(f"'{text}' is no size; write it as 512m or 10g")
    return text


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def compose(
    context: typer.Context,
    engine: Annotated[
        str | None,
        typer.Option(help="Whose tensor server: bident or triton (NVIDIA's image).", show_default="the setting's"),
    ] = None,
    write: Annotated[
        Path | None, typer.Option(help="Write docker-compose.yml into this folder.", metavar="DIR", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace one there that says something else.")] = False,
    image: Annotated[str, typer.Option(help="Another image than the usual one.", show_default=False)] = "",
    text: Annotated[bool, typer.Option(help="With the text server.")] = True,
    memory: Annotated[str, typer.Option(help="Most memory of each container.", callback=_size)] = "10g",
    shm_size: Annotated[str, typer.Option(help="Room for tensors in shared memory.", callback=_size)] = "2gb",
    network: Annotated[
        list[str] | None,
        typer.Option(
            help="A network of another project to join, or none; repeat it for several.",
            callback=_networks,
            show_default="litellm_default, docker_default",
        ),
    ] = None,
) -> None:
    """Print or write a Docker Compose file that serves what the settings here serve.

    Flags of 'bident up' may be added, and go before the environment and bident.toml.
    """
    from bident.cli.serve import DEFAULTS, config_file
    from bident.connect.neighbour import File
    from bident.connect.writing import write_files
    from bident.settings import given_texts, parse_both_args
    from bident.ship import compose as ship

    flags = [*context.args, *([f"--engine={engine}"] if engine else ())]
    tensor, text_settings = parse_both_args(flags, os.environ, config_file(), DEFAULTS)
    given, text_given = given_texts(flags, os.environ, config_file())
    wish = ship.Wish(
        engine=tensor.engine,
        image=image,
        text=text,
        memory=memory,
        shared_memory=shm_size,
        networks=tuple(dict.fromkeys(name for name in network if name != _NO_NETWORK)) if network else ship.NETWORKS,
    )
    for folder in tensor.model_repository:
        if not folder.is_dir():
            screen.note(f"There is no model repository at {folder} yet: Docker would make an empty folder of it.")
    page = ship.compose(ship.Site(tensor, text_settings, given, text_given, write or Path()), wish)
    if write is None:
        print(page, end="")
        return
    about = "docker compose up -d starts it"
    for path, is_new in write_files([File(ship.FILE_NAME, page, about)], write, force=force):
        screen.show(f"{'Wrote' if is_new else 'Unchanged:'} {screen.text(str(path))}; {about}.")
    if not image and (text or tensor.engine != "triton"):
        screen.note(f"First: docker build -f Containerfile -t {ship.BIDENT_IMAGE} . in Bident's sources")
    if wish.networks:
        names = " and ".join(wish.networks)
        screen.note(f"The networks {names} must be there (docker network ls); --network none leaves them out.")
