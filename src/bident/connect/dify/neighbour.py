"""Dify: an app and a tool for each tensor model, the text models as providers, and its proxy opened for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bident.connect.dify import door
from bident.connect.dify.names import Names
from bident.connect.dify.providers import providers
from bident.connect.dify.question import BASE64, FILE
from bident.connect.dify.tensors import MOST_TEXTS, UnfitError
from bident.connect.dify.tools import tools
from bident.connect.dify.way import hops
from bident.connect.dify.workflow import VERSIONS, workflow
from bident.connect.neighbour import File, Hop, Neighbour, Wanted, until_failure
from bident.connect.site import Address, Site, TensorModel, TextModel, at_host
from bident.errors import Code, ServeError, invalid_arg
from bident.settings.security import is_loopback

_TOP = 5
_LONGEST_NAME = 60
_TOOLS_FILE, _PROVIDERS_FILE = "openapi.json", "model-providers.txt"


@dataclass(frozen=True)
class _Choices:
    """What was chosen with ``--set``."""

    version: str
    pictures: str
    top: int
    with_key: bool


class Dify(Neighbour):
    """Asks the models from its workflows and agents."""

    name = "dify"
    summary = "workflows and tools for the tensor models, providers for the text models, its proxy opened"
    options = {  # noqa: RUF012
        "dsl-version": f"of the workflows: {VERSIONS[0]} (without it; Dify 1.13 to 1.15) or {VERSIONS[1]} (1.16 on)",
        "pictures": f"how a picture comes in: {FILE} (without it) or {BASE64}, text, which a real Triton needs",
        "top": f"how many of the best classes are answered: {_TOP} without it, at most {MOST_TEXTS}",
        "api-key": "yes: the server wants one, which the apps keep as a secret; it is yes where this command shows one",
        "dify": "where Dify answers, as http://127.0.0.1, for --check; without it that hop is left out",
        "proxy": "where Dify's ssrf_proxy can be reached, as http://127.0.0.1:3128, for --check",
    }

    def files(self, site: Site, wanted: Wanted) -> list[File]:
        choices = _choices(site, wanted)
        tensors, texts = _chosen(site, wanted)
        found: list[File] = []
        if site.tensor is not None and tensors:
            server = _as_dify_sees(site.tensor).theirs
            apps, unfit = _apps(tensors, server, choices)
            if not apps and wanted.models and not texts:
                raise ServeError(Code.UNSUPPORTED, "; ".join(f"{name}: {why}" for name, why in unfit.items()))
            document = tools(tensors, server, with_key=choices.with_key)
            about = "Tools, Custom, Create Custom Tool: paste it as the schema"
            found += [*apps, File(_TOOLS_FILE, document, about), *door.files(door.host_of(server))]
        if site.text is not None and texts:
            text = providers(texts, _as_dify_sees(site.text).theirs)
            found.append(File(_PROVIDERS_FILE, text, "what to fill in for each text model"))
        if not found:
            raise ServeError(Code.NOT_FOUND, "no model is loaded that Dify could use; see 'bident ls'")
        return found

    def steps(self, site: Site, wanted: Wanted) -> list[str]:
        tensors, texts = _chosen(site, wanted)
        steps: list[str] = []
        if site.tensor is not None and tensors:
            steps += _tensor_steps(site.tensor, tensors, _choices(site, wanted))
        if site.text is not None and texts:
            steps.append(f"Text models: Settings, Model Provider, as {_PROVIDERS_FILE} says.")
        return [*steps, "bident connect dify --check --set dify=http://127.0.0.1"]

    def check(self, site: Site, wanted: Wanted) -> Iterator[Hop]:
        tensor, text = (address and _as_dify_sees(address) for address in (site.tensor, site.text))
        return until_failure(hops(tensor, text, wanted.option("dify"), wanted.option("proxy")))


def _choices(site: Site, wanted: Wanted) -> _Choices:
    """Raises INVALID_ARG for a choice that there is not."""
    wants_key = site.tensor is not None and site.tensor.wants_key
    top = wanted.option("top", str(_TOP))
    if top not in map(str, range(1, MOST_TEXTS + 1)):
        raise invalid_arg(f"--set top={top}: it is a number from 1 to {MOST_TEXTS}")
    return _Choices(
        version=wanted.one_of("dsl-version", *VERSIONS),
        pictures=wanted.one_of("pictures", FILE, BASE64),
        top=int(top),
        with_key=wanted.one_of("api-key", *(("yes", "no") if wants_key else ("no", "yes"))) == "yes",
    )


def _chosen(site: Site, wanted: Wanted) -> tuple[list[TensorModel], list[TextModel]]:
    """What was asked for by name; without names all text models, and the tensor models but for steps of ensembles."""
    if wanted.models:
        texts = [model for model in site.text_models if model.name in wanted.models]
        return [model for model in site.models if model.name in wanted.models], texts
    steps = {step["model_name"] for model in site.models for step in _steps_of(model)}
    return [model for model in site.models if model.name not in steps], list(site.text_models)


def _steps_of(model: TensorModel) -> list[dict[str, str]]:
    return list((model.config.get("ensemble_scheduling") or {}).get("step", ()))


def _as_dify_sees(address: Address) -> Address:
    """Dify comes in containers, whose loopback is not this machine's: unless a name was given, it is Docker's."""
    if address.theirs != address.here or not is_loopback(door.host_of(address.here)):
        return address
    return replace(address, theirs=at_host(address.here, door.HOST_MACHINE))


def _apps(models: list[TensorModel], server: str, choices: _Choices) -> tuple[list[File], dict[str, str]]:
    """An app for each model, and why others have none."""
    apps: list[File] = []
    unfit: dict[str, str] = {}
    names = Names()
    for model in models:
        try:
            text = workflow(
                model,
                server,
                version=choices.version,
                top=choices.top,
                pictures=choices.pictures,
                with_key=choices.with_key,
            )
        except UnfitError as why:
            unfit[model.name] = str(why)
        else:
            path = f"workflows/{names.name(model.name, _LONGEST_NAME)}.yml"
            apps.append(File(path, text, f"the model {model.name} as an app: Studio, Import DSL file"))
    return apps, unfit


def _tensor_steps(tensor: Address, models: list[TensorModel], choices: _Choices) -> list[str]:
    seen = _as_dify_sees(tensor)
    host = door.host_of(seen.theirs)
    _, unfit = _apps(models, seen.theirs, choices)
    steps = [f"No workflow for {name}: {why}." for name, why in unfit.items()]
    if seen is not tensor:
        steps.append(
            f"Dify is taken to run in containers here, which call this machine {host}; say otherwise with --host NAME "
            "(a container's name, an address, or localhost for a Dify without containers)."
        )
        steps.append(
            "On Linux the server must listen to them: bident up --http-address=0.0.0.0 --api-key-file=FILE, "
            f"and {door.HOSTS_FILE} goes beside Dify's docker-compose.yaml."
        )
    steps += [
        f"Dify 1.15 and newer: the line of {door.VARIABLES_FILE} goes into its docker/.env; then, there: {door.APPLY}",
        "Studio, Import DSL file: each file in workflows/.",
        f"For agents: Tools, Custom, Create Custom Tool, with {_TOOLS_FILE} as the schema.",
    ]
    if choices.with_key:
        steps.append(
            "The API key goes into each workflow as its environment variable api_key, and into the custom tool as its "
            "API key: header Authorization, Bearer."
        )
    return steps
