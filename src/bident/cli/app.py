"""The tree of commands."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated

import typer

from bident import __version__
from bident.cli import add, connect, doctor, export, library, lifecycle, models, run, watch
from bident.cli.front import FrontPage
from bident.errors import ServeError

app = typer.Typer(
    cls=FrontPage,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)

_SERVER = "Servers"
_MODELS = "Models"
_TEXT = "Text models"
_TENSOR = "Tensor models"
_AROUND = "Around them"
_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"bident {__version__}")
        raise typer.Exit


def _remember(variable: str) -> Callable[[str], None]:
    """Keeps an option in ``variable``, where whatever asks a server in this process looks for it."""

    def remember(text: str) -> None:
        if text:
            os.environ[variable] = text

    return remember


def _remember_headers(lines: list[str] | None) -> None:
    """The same for headers, one a line. Raises BadParameter for what is none."""
    if not lines:
        return
    from bident.client.credentials import HEADERS_VARIABLE, read_header

    try:
        headers = [": ".join(read_header(line)) for line in lines]
    except ServeError as error:
        raise typer.BadParameter(error.message) from None
    _remember(HEADERS_VARIABLE)("\n".join(headers))


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version)
    ] = False,
    api_key: Annotated[
        str,
        typer.Option(
            help="Shown to the server, where it wants one.",
            envvar="BIDENT_API_KEY",
            show_default=False,
            callback=_remember("BIDENT_API_KEY"),
        ),
    ] = "",
    ca: Annotated[
        str,
        typer.Option(
            help="PEM file of the authority to believe for https; without it, the system's.",
            metavar="FILE",
            envvar="BIDENT_CA",
            show_default=False,
            callback=_remember("BIDENT_CA"),
        ),
    ] = "",
    header: Annotated[
        list[str] | None,
        typer.Option(
            help="A header to send, as restricted APIs want one; repeat it for several.",
            metavar="'NAME: VALUE'",
            show_default=False,
            callback=_remember_headers,
        ),
    ] = None,
) -> None:
    """A local inference platform: models as Triton serves them, text as Ollama does, without Docker or a GPU."""


app.command(rich_help_panel=_SERVER, context_settings=_PASSED_ON)(lifecycle.up)
app.command(rich_help_panel=_SERVER)(lifecycle.down)
app.command(rich_help_panel=_SERVER, context_settings=_PASSED_ON)(lifecycle.restart)
app.command(rich_help_panel=_SERVER)(watch.status)
app.command(rich_help_panel=_SERVER)(watch.logs)


@app.command("serve", rich_help_panel=_SERVER, context_settings=_PASSED_ON, add_help_option=False)
def _serve(context: typer.Context) -> None:
    """Run the servers, or one of them, in the foreground; takes tritonserver's flags."""
    from bident.cli.serve import serve

    raise typer.Exit(serve(context.args))


app.command("run", rich_help_panel=_MODELS)(run.run)
app.command("ls", rich_help_panel=_MODELS)(models.ls)
app.command("ps", rich_help_panel=_MODELS)(models.ps)
app.command(rich_help_panel=_MODELS)(models.show)
for _command in (library.pull, library.push, library.create, library.cp, library.rm, library.stop):
    app.command(rich_help_panel=_TEXT)(_command)
app.command("add", rich_help_panel=_TENSOR)(add.add)
app.command(rich_help_panel=_TENSOR)(models.load)
app.command(rich_help_panel=_TENSOR)(models.unload)
app.command(rich_help_panel=_AROUND)(connect.connect)
app.command(rich_help_panel=_AROUND)(doctor.doctor)
app.add_typer(export.app, name="export", rich_help_panel=_AROUND)


@app.command("zoo", rich_help_panel=_MODELS, context_settings=_PASSED_ON, add_help_option=False)
def _zoo(context: typer.Context) -> None:
    """Build the sample models and check their answers."""
    # Not mounted as a sub-tree: its recipes import numpy, which no other command should wait for.
    from bident.cli import zoo

    zoo.app(context.args, prog_name="bident zoo")
