"""Open WebUI: a chat in the browser, with the text engine's models."""

from __future__ import annotations

from collections.abc import Iterator

from bident.connect.elsewhere import Elsewhere
from bident.connect.neighbour import File, Hop, Neighbour, Wanted, failed, until_failure
from bident.connect.site import Site
from bident.connect.text_way import able, some_model, text_address, text_hops
from bident.errors import ServeError

_FILE = "openwebui.env"


class _Page(Elsewhere):
    protocol = "Open WebUI"
    flag = "--set openwebui=URL"


class OpenWebUi(Neighbour):
    """Asks the text server as it asks Ollama."""

    name = "openwebui"
    summary = "a chat in the browser, with documents: its variables for the text models"
    options = {  # noqa: RUF012
        "api": "ollama (without it), or openai, which can show the server an API key",
        "openwebui": "where Open WebUI answers, for --check; without it that hop is left out",
    }

    def files(self, site: Site, wanted: Wanted) -> list[File]:
        some_model(site, wanted)
        api = wanted.one_of("api", *_APIS)
        chat, documents = _APIS[api](text_address(site).theirs)
        lines = [
            "# Open WebUI keeps what it was told first in its database; with this, these lines hold at every start.",
            "ENABLE_PERSISTENT_CONFIG=False",
            *chat,
            *(f"DEFAULT_MODELS={model.name}" for model in able(site, wanted, "completion")[:1]),
        ]
        for model in able(site, wanted, "embedding")[:1]:
            lines += [
                "# Documents are embedded here too, instead of by a model that it would download.",
                f"RAG_EMBEDDING_ENGINE={api}",
                f"RAG_EMBEDDING_MODEL={model.name}",
                *documents,
            ]
        return [File(_FILE, "\n".join(lines) + "\n", "variables of Open WebUI")]

    def steps(self, site: Site, wanted: Wanted) -> list[str]:
        return [
            f"On this machine: pip install open-webui; set -a; . ./{_FILE}; open-webui serve",
            f"In a container: make {_FILE} with --host host.docker.internal --set api=openai and its key in it; "
            f"docker run --env-file {_FILE} --add-host host.docker.internal:host-gateway -p 3000:8080 "
            "ghcr.io/open-webui/open-webui:main",
            "For containers the server listens to more than loopback, with a key: "
            "bident up --text-host=0.0.0.0 --text-api-key-file=FILE",
            "bident connect openwebui --check",
        ]

    def check(self, site: Site, wanted: Wanted) -> Iterator[Hop]:
        return until_failure(_hops(site, wanted))


def _ollama(url: str) -> tuple[list[str], list[str]]:
    """For chats, and for documents."""
    return (
        ["ENABLE_OLLAMA_API=True", f"OLLAMA_BASE_URL={url}", "ENABLE_OPENAI_API=False"],
        [f"RAG_OLLAMA_BASE_URL={url}"],
    )


def _openai(url: str) -> tuple[list[str], list[str]]:
    """The same; the keys are for the person to fill in."""
    return (
        [
            "ENABLE_OLLAMA_API=False",
            "ENABLE_OPENAI_API=True",
            f"OPENAI_API_BASE_URL={url}/v1",
            "# The server's API key, where it wants one; any word where it does not.",
            "OPENAI_API_KEY=none",
        ],
        [f"RAG_OPENAI_API_BASE_URL={url}/v1", "RAG_OPENAI_API_KEY=none"],
    )


_APIS = {"ollama": _ollama, "openai": _openai}
"""The first goes without saying."""


def _hops(site: Site, wanted: Wanted) -> Iterator[Hop]:
    yield from text_hops(site, wanted)
    url = wanted.option("openwebui")
    if not url:
        return
    try:
        version = _Page(url).get_json("/api/version")["version"]
    except (ServeError, KeyError, TypeError) as error:
        cure = "start it, or say where it is: --set openwebui=URL"
        yield failed("here -> Open WebUI", error, f"{url} is no Open WebUI", cure)
        return
    yield Hop("here -> Open WebUI", True, f"Open WebUI {version} answers at {url}")
