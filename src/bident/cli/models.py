"""``bident ls``, ``ps``, ``show``, ``load`` and ``unload``: what the servers hold, and changing that."""

from __future__ import annotations

import json
import math
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bident.cli import screen, standing
from bident.cli.both import ask_both, owner
from bident.cli.target import Json, Url, connect, metrics_url
from bident.cli.text_server import TextUrl
from bident.errors import Code, ServeError, invalid_arg
from bident.local.record import STATE_DIR, Record

if TYPE_CHECKING:
    from bident.cli.card import ModelCard
    from bident.client import Client

Model = Annotated[str, typer.Argument(help="Name of the model.", show_default=False)]
_COLOURS = {"READY": "green", "LOADING": "yellow", "UNLOADING": "yellow", "UNAVAILABLE": "red"}
_LARGEST_EXAMPLE = 64
"""Elements of an input that are still written out in an example request."""


def ls(url: Url = None, text_url: TextUrl = None, as_json: Json = False) -> None:
    """List all models: the tensor models of the repository, loaded, failed or just there, and the text models."""
    from bident.cli import text_models

    tensors, texts = ask_both(url, text_url, _listed, lambda client: client.models())
    if as_json:
        entries = tensors[0] if tensors else []
        screen.show_json([*_of_engine("tensor", entries), *_of_engine("text", texts or [])])
        return
    if tensors and tensors[0]:
        _show_index(*tensors)
    elif tensors is not None:
        screen.show("The repository is empty; fill it with 'bident zoo build iris_sklearn' or 'bident add FILE'.")
    if texts:
        text_models.show_list(texts)
    elif texts is not None:
        screen.show("There are no text models; fetch one with 'bident pull smollm2'.")


def _of_engine(engine: str, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a server says of its models, with the engine that each belongs to."""
    return [{"engine": engine, **entry} for entry in entries]


def _listed(client: Client) -> tuple[list[standing.Entry], dict[str, dict[str, Any]]]:
    """The index, and the configurations of the loaded models."""
    entries = client.index()
    return entries, {entry["name"]: _config(client, entry) for entry in entries}


def _show_index(entries: list[standing.Entry], configs: dict[str, dict[str, Any]]) -> None:
    from bident.cli import card
    from bident.model.parameters import synthetic

    rows = screen.table("model", ">version", "state", "backend", "batching", "remarks")
    for entry in entries:
        config = configs[entry["name"]]
        state = entry.get("state") or "not loaded"
        remark = standing.remark(entry.get("reason", "")) or ("synthetic weights" if synthetic(config) else "")
        rows.add_row(
            screen.text(entry["name"]),
            entry.get("version", ""),
            f"[{_COLOURS.get(state, 'dim')}]{state}[/]",
            config.get("backend", "") or config.get("platform", ""),
            card.batching(config) if config else "",
            screen.text(remark),
        )
    screen.show(rows)


def _config(client: Client, entry: dict[str, Any]) -> dict[str, Any]:
    """The configuration of a loaded model; nothing for others, which no server describes."""
    if entry.get("state") != "READY":
        return {}
    try:
        return client.config(entry["name"])
    except ServeError:
        # Unloaded between the two questions.
        return {}


def ps(url: Url = None, text_url: TextUrl = None, as_json: Json = False) -> None:
    """List the loaded models: of tensor models what they did and how fast, of text models how long they stay."""
    from bident.cli import text_models

    tensors, texts = ask_both(url, text_url, _loaded, lambda client: client.running())
    if as_json:
        screen.show_json([*_of_engine("tensor", tensors[0] if tensors else []), *_of_engine("text", texts or [])])
        return
    if tensors:
        stats, waiting, entries = tensors
        if stats:
            _show_figures(stats, waiting)
        elif not standing.loading(entries):
            screen.show("No tensor model is loaded; 'bident ls' lists what the repository holds.")
        _show_standing(entries)
    if texts:
        text_models.show_running(texts)
    elif texts is not None:
        screen.show("No text model is loaded; one that is asked loads by itself.")


def _loaded(client: Client) -> tuple[list[dict[str, Any]], dict[tuple[str, str], str], list[standing.Entry]]:
    """Statistics, pending requests, and the index."""
    stats = client.stats()
    return stats, _pending(client) if stats else {}, client.index()


def _show_standing(entries: list[standing.Entry]) -> None:
    """What does not serve, or not fully."""
    for title, found in (
        ("Loading", standing.loading(entries)),
        ("Not available", standing.failed(entries)),
        ("Not every instance is there", standing.impaired(entries)),
    ):
        if found:
            screen.show("\n".join([f"{title}:", *map(screen.text, standing.lines(found))]))


def _show_figures(stats: list[dict[str, Any]], waiting: dict[tuple[str, str], str]) -> None:
    rows = screen.table(
        "model",
        ">version",
        ">requests",
        ">failed",
        ">rows/run",
        ">mean ms",
        ">queue",
        ">compute",
        ">pending",
        "last used",
    )
    for model in stats:
        parts = model["inference_stats"]
        requests, runs = parts["success"]["count"], model["execution_count"]
        compute = sum(parts[part]["ns"] for part in ("compute_input", "compute_infer", "compute_output"))
        rows.add_row(
            screen.text(model["name"]),
            model["version"],
            str(requests),
            str(parts["fail"]["count"]),
            f"{model['inference_count'] / runs:.1f}" if runs else "",
            _mean_ms(parts["success"]["ns"], requests),
            _mean_ms(parts["queue"]["ns"], requests),
            _mean_ms(compute, requests),
            waiting.get((model["name"], model["version"]), ""),
            _ago(model["last_inference"]),
        )
    screen.show(rows)


def _mean_ms(nanoseconds: int, count: int) -> str:
    return f"{nanoseconds / count / 1e6:.3f}" if count else ""


def _ago(milliseconds: int) -> str:
    if not milliseconds:
        return "never"
    return f"{standing.lasting(time.time() - milliseconds / 1000)} ago"


def _pending(client: Client) -> dict[tuple[str, str], str]:
    """Requests waiting, by model and version, from the metrics door; nothing where that is closed."""
    import re

    from bident.client import Client

    try:
        page = (
            Client(metrics_url(client), 2.0, client.credentials)
            .exchange("GET", "/metrics")
            .body.decode(errors="replace")
        )
    except ServeError:
        return {}
    found = {}
    for labels, value in re.findall(r"^nv_inference_pending_request_count\{(.*)\} (\S+)$", page, re.MULTILINE):
        pairs = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        found[pairs.get("model", ""), pairs.get("version", "")] = f"{float(value):.0f}"
    return found


def show(
    model: Model,
    modelfile: Annotated[bool, typer.Option("--modelfile", help="Print a text model's Modelfile alone.")] = False,
    url: Url = None,
    text_url: TextUrl = None,
    as_json: Json = False,
) -> None:
    """Show a model: inputs, outputs, configuration; of a text model what it is and can do; and a request to try."""
    from bident.cli import text_models
    from bident.client import TextClient

    client = owner(model, url, text_url)
    if isinstance(client, TextClient):
        text_models.show_card(client, model, modelfile=modelfile, as_json=as_json)
    elif modelfile:
        raise invalid_arg(f"'{model}' is a tensor model: it has a config.pbtxt, shown without --modelfile")
    else:
        _show_tensor_model(client, model, as_json)


def _show_tensor_model(client: Client, model: str, as_json: bool) -> None:
    from bident.cli.card import ModelCard

    if as_json:
        screen.show_json({"metadata": client.metadata(model), "config": client.config(model)})
        return
    described = ModelCard.fetch(client, model)
    screen.show(
        f"[bold]{screen.text(described.name)}[/bold]  version {', '.join(described.versions)}, "
        f"backend {described.backend}, batching {described.batching}"
    )
    if described.synthetic:
        screen.show(f"[yellow]Synthetic weights: its answers mean nothing.[/yellow] {screen.text(described.synthetic)}")
    rows = screen.table("", "tensor", "datatype", "shape", "remarks")
    for direction, tensors in (("input", described.inputs), ("output", described.outputs)):
        for tensor in tensors.values():
            remark = "optional" if tensor.optional else "has labels" if tensor.labelled else ""
            rows.add_row(
                direction, screen.text(tensor.name), tensor.datatype, screen.text(str(list(tensor.shape))), remark
            )
    screen.show(rows)
    _show_parameters(described)
    print(f"Try:\n{example(client.url, described)}")


def _show_parameters(described: ModelCard) -> None:
    names = sorted(described.config.get("parameters", {}))
    if not names:
        return
    rows = screen.table("parameter", "value")
    for name in names:
        rows.add_row(screen.text(name), screen.text(described.parameter(name)))
    screen.show(rows)


def example(url: str, described: ModelCard) -> str:
    """A command that asks the model something: curl with zeros, or ``bident run`` when that gets too long."""
    from bident.client import model_path

    inputs: list[dict[str, Any]] = []
    for tensor in described.inputs.values():
        if tensor.optional:
            continue
        shape = [max(dim, 1) for dim in tensor.shape]
        if math.prod(shape) > _LARGEST_EXAMPLE:
            return f"  bident run {described.name} FILE    (image, csv, npz or json)"
        zero: Any = {"BYTES": "", "BOOL": False}.get(tensor.datatype, 0)
        data = [zero] * math.prod(shape)
        inputs.append({"name": tensor.name, "shape": shape, "datatype": tensor.datatype, "data": data})
    path = f"{url}{model_path(described.name)}"
    sequence = described.lone_sequence(1)
    if described.decoupled:
        values = {entry["name"]: entry["data"] if len(entry["data"]) > 1 else entry["data"][0] for entry in inputs}
        return f"  curl -N {path}/generate_stream -d '{_quoted({**values, **sequence})}'"
    body = {"parameters": sequence, "inputs": inputs} if sequence else {"inputs": inputs}
    return f"  curl {path}/infer -d '{_quoted(body)}'"


def _quoted(body: dict[str, Any]) -> str:
    """``body`` as JSON that can stand between single quotes in a shell."""
    return json.dumps(body).replace("'", "'\\''")


@contextmanager
def _explaining_the_mode(client: Client) -> Iterator[None]:
    """Say how to get a server that may be told what to load, where this one may not."""
    try:
        yield
    except ServeError as error:
        if error.code is Code.UNAVAILABLE and "not allowed" in error.message:
            record = Record.read(Path(STATE_DIR))
            own = record if record and record.url == client.url else None
            wanted = ("--model-control-mode=explicit",)
            command = f"bident restart {shlex.join(own.flags_with(wanted))}" if own else f"bident up {wanted[0]}"
            raise ServeError(error.code, f"{error.message}; '{command}' does that") from None
        raise


def load(model: Model, url: Url = None) -> None:
    """Load a tensor model, or load it again after its folder changed (explicit mode)."""
    client = connect(url)
    with _explaining_the_mode(client), screen.console(stderr=True).status(f"Loading {model}"):
        client.load(model)
    screen.show(f"Loaded {screen.text(model)}; 'bident show {screen.text(model)}' tells how to ask it.")


def unload(model: Model, url: Url = None) -> None:
    """Unload a tensor model; requests in flight are finished first (explicit mode)."""
    client = connect(url)
    with _explaining_the_mode(client):
        loaded = {entry["name"] for entry in client.index() if entry.get("state") in ("READY", "LOADING")}
        client.unload(model)
    if model not in loaded:
        named = ", ".join(sorted(loaded)) or "none"
        raise ServeError(Code.NOT_FOUND, f"nothing was loaded under the name '{model}' (loaded: {named})")
    screen.show(f"Unloaded {screen.text(model)}.")
