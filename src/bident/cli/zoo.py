"""``bident zoo``: list, build and question the sample models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from bident.cli import screen, standing, text_server, zoo_text
from bident.cli.target import Url, connect
from bident.cli.text_server import TextUrl
from bident.client.http import Client
from bident.client.infer import Answer, as_json, infer, infer_body, is_text
from bident.errors import Code, ServeError
from bident.zoo import RECIPES, TEXT_SAMPLES, BuildResult, Recipe, TextSample, find
from bident.zoo.recipe import Report, Tensors
from bident.zoo.text_samples import BACKEND

app = typer.Typer(
    help="Sample models: list them, build them, ask each a question whose answer is known.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)

_REPOSITORY = Path("model_repository")
_LARGEST_JSON = 1024
"""Elements of a question that still travels as JSON; pixels and files travel as binary data."""

Into = Annotated[Path, typer.Option("--into", help="The model repository that holds the sample models.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Sample models.", show_default=False)]


@app.command("list")
def list_recipes(into: Into = _REPOSITORY, as_json: Json = False) -> None:
    """Show every sample model, and whether it is built."""
    rows: list[dict[str, object]] = [
        {
            "model": recipe.name,
            "backend": recipe.backend,
            "what": recipe.summary,
            "weights": _weights(recipe, into),
            "built": recipe.built(into) is not None,
        }
        for recipe in RECIPES.values()
    ]
    rows += [zoo_text.row(sample) for sample in TEXT_SAMPLES.values()]
    if as_json:
        screen.show_json(rows)
        return
    table = screen.table("model", "backend", "what", "weights", "built")
    for row in rows:
        built = "[green]yes[/]" if row["built"] else "no"
        table.add_row(*[str(row[column]) for column in ("model", "backend", "what", "weights")], built)
    screen.show(table)


@app.command()
def build(
    names: Names = None,
    everything: Annotated[bool, typer.Option("--all", help="Build all that need nothing further.")] = False,
    into: Into = _REPOSITORY,
    force: Annotated[bool, typer.Option("--force", help="Build anew what is there already.")] = False,
) -> None:
    """Build or fetch sample models: into a model repository, text models into the text engine's store.

    What is there already is left alone.
    """
    if bool(names) == everything:
        raise typer.BadParameter("name the sample models to build, or give --all")
    samples = [find(name) for name in dict.fromkeys(names or _in_all())]
    with _progress() as progress:
        built = [_build_one(sample, into, force, progress) for sample in samples]
    for sample, done in zip(samples, built, strict=True):
        if done and isinstance(sample, Recipe) and (sample.needs or sample.fetches_weights):
            screen.note(_still_needed(sample, into))
    if not all(built):
        raise typer.Exit(1)


@app.command()
def check(
    names: Names = None, url: Url = None, text_url: TextUrl = None, into: Into = _REPOSITORY, as_json: Json = False
) -> None:
    """Send each sample model that is built (or each NAME) one real request, and judge its answer.

    Where only one server is named, its models alone are asked.
    """
    if names:
        samples = [find(name) for name in dict.fromkeys(names)]
    else:
        samples = [recipe for recipe in RECIPES.values() if (url or not text_url) and recipe.built(into)]
        if text_url or not url:
            samples += [sample for sample in TEXT_SAMPLES.values() if sample.built(zoo_text.store())]
    if not samples:
        raise ServeError(Code.NOT_FOUND, f"no sample model is in {into}: bident zoo build --all --into {into}")
    recipes = [sample for sample in samples if isinstance(sample, Recipe)]
    rows: list[CheckRow] = []
    if recipes:
        client = connect(url)
        client.exchange("GET", "/v2/health/live")  # one error if nobody answers, instead of one a model
        rows += [row for recipe in recipes for row in _ask(client, recipe, into)]
    texts = [sample for sample in samples if isinstance(sample, TextSample)]
    rows += [_ask_text(text_url, sample) for sample in texts]
    if as_json:
        screen.show_json([asdict(row) for row in rows])
    else:
        _show(rows)
    if not all(row.ok for row in rows):
        raise typer.Exit(1)


def _ask_text(text_url: str | None, sample: TextSample) -> CheckRow:
    answer, latency_ms, ok = zoo_text.ask(text_server.connect(text_url), sample)
    return CheckRow(sample.name, BACKEND, "real", sample.input, answer, latency_ms, ok)


@dataclass(frozen=True)
class CheckRow:
    """One question put to one model. ``answer`` is the cause of the failure where ``ok`` is False."""

    model: str
    backend: str
    weights: str
    input: str
    answer: str
    latency_ms: float | None
    ok: bool


def _ask(client: Client, recipe: Recipe, into: Path) -> Iterator[CheckRow]:
    """One row for each question of ``recipe``."""
    facts = recipe.built(into)
    weights = _weights(recipe, into)
    if facts is None:
        cause = f"not in {into}, so the right answer is not known: bident zoo build {recipe.name} --into {into}"
        yield CheckRow(recipe.name, recipe.backend, weights, "", cause, None, ok=False)
        return
    for question in recipe.questions(facts):
        latency_ms = None
        try:
            reply = _infer(client, recipe.name, question.inputs())
            latency_ms = round(reply.seconds * 1e3, 2)
            answer, ok = question.check(reply.tensors), True
        except ServeError as error:
            answer, ok = error.message, False
        yield CheckRow(recipe.name, recipe.backend, weights, question.summary, answer, latency_ms, ok)


def _infer(client: Client, model: str, tensors: Tensors) -> Answer:
    if sum(array.size for array in tensors.values()) <= _LARGEST_JSON and all(map(is_text, tensors.values())):
        return infer_body(client, model, as_json(tensors))
    return infer(client, model, tensors)


def _show(rows: list[CheckRow]) -> None:
    table = screen.table("model", "backend", "weights", "input", "answer", ">latency", "ok")
    for row in rows:
        latency = "" if row.latency_ms is None else f"{row.latency_ms:.1f} ms"
        words = [
            screen.text(word) for word in (row.model, row.backend, row.weights, row.input, standing.gist(row.answer))
        ]
        table.add_row(*words, latency, "[green]yes[/]" if row.ok else "[red]NO[/]")
    screen.show(table)


def _weights(recipe: Recipe, into: Path) -> str:
    if not recipe.has_weights:
        return "none"
    if recipe.fetches_weights:
        return "fetched when loaded"
    facts = recipe.built(into)
    if facts is not None:
        return "synthetic" if facts.synthetic else "real"
    return "real or synthetic" if recipe.may_be_synthetic else "real"


def _in_all() -> list[str]:
    return [*(recipe.name for recipe in RECIPES.values() if recipe.in_all), *TEXT_SAMPLES]


def _build_one(sample: Recipe | TextSample, into: Path, force: bool, progress: Progress) -> bool:
    """Build with one line of progress; says the cause and returns False when it fails."""
    task = progress.add_task(sample.name, total=None, step="")

    def report(step: str, fraction: float | None) -> None:
        progress.update(task, step=step, total=None if fraction is None else 1.0, completed=fraction or 0.0)

    try:
        outcome = _build(sample, into, force, report)
    except (ServeError, OSError) as error:
        progress.update(task, total=1.0, completed=0.0, step="[red]failed[/]")
        progress.stop_task(task)
        screen.note(f"{sample.name}: {error}")
        return False
    progress.update(task, total=1.0, completed=1.0, step=outcome)
    return True


def _build(sample: Recipe | TextSample, into: Path, force: bool, report: Report) -> str:
    """Build, and say in a few words what that came to."""
    if isinstance(sample, TextSample):
        return zoo_text.build(sample, report, force)
    result = sample.build(into, report, force=force)
    if result.fresh and result.facts.synthetic:
        screen.note(f"{sample.name}: {result.facts.origin}")
    return _outcome(sample, result)


def _outcome(recipe: Recipe, result: BuildResult) -> str:
    done = "built" if result.fresh else "was there already"
    if not recipe.has_weights:
        return done
    if recipe.fetches_weights:
        return f"{done}, no weights yet"
    return f"{done}, {'[yellow]synthetic weights[/]' if result.facts.synthetic else 'real weights'}"


def _still_needed(recipe: Recipe, into: Path) -> str:
    """What a model needs beyond its folder, and the commands that give it that and then load it."""
    missing = [package for package in recipe.needs if find_spec(package) is None]
    parts = [f"{recipe.name}: it needs {' and '.join(recipe.needs)}"] if recipe.needs else [f"{recipe.name}:"]
    if recipe.needs:
        parts.append(f"({', '.join(missing)} not installed here)." if missing else "(installed here).")
    if recipe.fetches_weights:
        parts.append("Its weights are fetched at the first load.")
    install = f"pip install {' '.join(missing)} (or EXECUTION_ENV_PATH in its config.pbtxt), then " if missing else ""
    parts.append(f"Next: {install}'bident up --repo {into}', or 'bident load {recipe.name}' in explicit mode.")
    return " ".join(parts)


@contextmanager
def _progress() -> Iterator[Progress]:
    columns = (
        SpinnerColumn(finished_text=" "),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TextColumn("{task.fields[step]}"),
    )
    with Progress(*columns, console=screen.console()) as progress:
        yield progress
