"""The way from a neighbour to text models, where it speaks Ollama's API and nothing stands between."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from bident.client import TextClient
from bident.connect.neighbour import Hop, Wanted, failed
from bident.connect.site import Address, Site, TextModel
from bident.errors import Code, ServeError

_PULL = "bident pull smollm2 minilm"
_PROBE_SECONDS = 5.0


def text_address(site: Site) -> Address:
    """The text server. Raises UNAVAILABLE where none answers."""
    if site.text is None:
        raise ServeError(Code.UNAVAILABLE, "the text server does not answer; start it with 'bident up'")
    return site.text


def able(site: Site, wanted: Wanted, capability: str) -> list[TextModel]:
    """The text models with ``capability``: those that were asked for, all where none was."""
    return [model for model in site.text_models if wanted.includes(model.name) and capability in model.capabilities]


def some_model(site: Site, wanted: Wanted) -> None:
    """Raise NOT_FOUND where there is no model that answers or makes vectors."""
    if able(site, wanted, "completion") or able(site, wanted, "embedding"):
        return
    there = [model.name for model in site.text_models]
    if wanted.models and there:
        asked = ", ".join(map(repr, wanted.models))
        raise ServeError(Code.NOT_FOUND, f"no text model is among {asked}; there is {', '.join(there)}")
    raise ServeError(Code.NOT_FOUND, f"there is no text model to connect to; fetch some: {_PULL}")


def text_hops(site: Site, wanted: Wanted) -> Iterator[Hop]:
    """The server under the neighbour's name for it, then the first model of each kind that is asked."""
    if site.text is None:
        yield Hop("here -> text server", False, "it does not answer", "bident up; --text-url says where it is")
        return
    client = TextClient(site.text.here, credentials=site.text.credentials)
    models = [*able(site, wanted, "completion"), *able(site, wanted, "embedding")]
    yield Hop("here -> text server", bool(models), f"{len(models)} models at {site.text.here}", _PULL)
    if site.text.theirs != site.text.here:
        yield _under_their_name(site.text)
    for kind, hop in (("completion", _answers), ("embedding", _embeds)):
        for model in able(site, wanted, kind)[:1]:
            try:
                yield hop(client, model.name)
            except (ServeError, KeyError, IndexError, TypeError) as error:
                cure = f"bident run {model.name} Hello; bident logs"
                yield failed(f"text server -> {model.name}", error, f"its answer is none: {error!r}", cure)


def greeting(client: TextClient, model: str) -> str:
    """The few words of ``model`` when it is asked to say hello. Raises KeyError or TypeError for no such answer."""
    body = {"model": model, "messages": [{"role": "user", "content": "Say hello."}], "stream": False}
    said: str = client.call("POST", "/api/chat", {**body, "options": {"num_predict": 8}})["message"]["content"]
    return said.strip()


def _under_their_name(address: Address) -> Hop:
    """Whether the server answers under the name that the neighbour will use, as far as this machine can tell."""
    name = "here -> text server, by its name there"
    host = urlsplit(address.theirs).hostname or ""
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return Hop(name, True, f"not tried: {host} has no meaning on this machine, only where the neighbour runs")
    if TextClient(address.theirs, _PROBE_SECONDS, address.credentials).live():
        return Hop(name, True, f"answers at {address.theirs}")
    cure = "the server must listen to more than loopback: bident up --text-host=0.0.0.0 --text-api-key-file=FILE"
    return Hop(name, False, f"nothing answers at {address.theirs}", cure)


def _answers(client: TextClient, model: str) -> Hop:
    return Hop(f"text server -> {model}", True, f"answers: {greeting(client, model)!r}")


def _embeds(client: TextClient, model: str) -> Hop:
    vectors = client.embed(model, ["Say hello."])
    return Hop(f"text server -> {model}", True, f"makes vectors of {len(vectors[0])} numbers")
