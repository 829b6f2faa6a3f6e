"""``bident add FILE``: from a model file to a model folder that a server can load."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bident.cli import screen
from bident.cli.target import Url, connect
from bident.errors import ServeError
from bident.local.record import STATE_DIR, Record

if TYPE_CHECKING:
    from bident.cli.detect import ModelFile
    from bident.model.config import ModelConfig


def add(
    file: Annotated[
        Path, typer.Argument(help="ONNX, XGBoost, LightGBM or treelite file, or model.py.", show_default=False)
    ],
    name: Annotated[str, typer.Option(help="Name of the model; the file's without it.", show_default=False)] = "",
    repo: Annotated[Path, typer.Option(help="The model repository.")] = Path("model_repository"),
    proba: Annotated[
        bool, typer.Option("--proba", help="Let a tree classifier answer the probabilities of its classes.")
    ] = False,
    url: Url = None,
) -> None:
    """Put a model file into the repository, with a complete configuration that explains itself.

    Only of a model.py the configuration may have to be filled in.
    """
    from bident.cli.detect import PYTHON_MODEL, detect
    from bident.cli.newfolder import check_name, folder_name, write_folder, write_python_folder

    found = detect(file)
    name = name or folder_name(file)
    try:
        check_name(name)
    except ServeError as error:
        raise typer.BadParameter(error.message) from None
    if found is PYTHON_MODEL:
        if proba:
            raise typer.BadParameter("--proba is for tree models, whose answer it chooses")
        _show_python(found, repo / name, write_python_folder(file, repo, name))
    else:
        _show(found, write_folder(file, found, repo, name, proba=proba), repo / name)
    _offer_to_load(name, url)


def _show_written(found: ModelFile, folder: Path) -> None:
    screen.show(f"{found.what}: for the tensor engine, backend {found.backend}. Written to {screen.text(str(folder))}")


def _show_python(found: ModelFile, folder: Path, unfinished: list[int]) -> None:
    """Say what of the configuration is still to be written: it cannot be served before."""
    _show_written(found, folder)
    config = screen.text(str(folder / "config.pbtxt"))
    if not unfinished:
        screen.show(f"{config} needs nothing: auto_complete_config declares the inputs and outputs.")
        return
    lines = f"line {unfinished[0]}" if len(unfinished) == 1 else f"lines {', '.join(map(str, unfinished))}"
    screen.show(
        f"First edit {config}, {lines}: the data_type and dims of each input and output, which its code does not say."
    )


def _show(found: ModelFile, config: ModelConfig, folder: Path) -> None:
    _show_written(found, folder)
    rows = screen.table("", "tensor", "datatype", "dims")
    for direction, tensors in (("input", config.inputs), ("output", config.outputs)):
        for tensor in tensors.values():
            rows.add_row(direction, screen.text(tensor.name), tensor.datatype.name, screen.text(str(list(tensor.dims))))
    screen.show(rows)


def _offer_to_load(name: str, url: str | None) -> None:
    """Say, or do, what makes the new model answer. Only this folder's own server is offered it."""
    record = Record.read(Path(STATE_DIR))
    own = record if record and record.running() else None
    if url and not (own and connect(url).url == own.url):
        screen.show(f"Next: let the server at {url} have this folder, then 'bident load {name} --url {url}'.")
    elif own is None:
        screen.show(f"Next: 'bident up', then 'bident show {name}'.")
    elif own.control_mode == "poll":
        screen.show(f"The server will find it by itself; see 'bident ls', then 'bident show {name}'.")
    elif own.control_mode == "none":
        screen.show("Next: 'bident restart', since the server loads models only at its start.")
    elif sys.stdin.isatty() and typer.confirm("Load it now?", default=True):
        connect(own.url).load(name)
        screen.show(f"Loaded; 'bident show {name}' tells how to ask it.")
    else:
        screen.show(f"Next: 'bident load {name}', then 'bident show {name}'.")
