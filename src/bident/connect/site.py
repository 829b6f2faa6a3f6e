"""What is served here and now, as the servers' public APIs tell it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from bident.client import Client, Credentials, TextClient
from bident.errors import Code, ServeError


@dataclass(frozen=True)
class TensorModel:
    """One loaded model of the tensor server."""

    name: str
    version: str
    metadata: dict[str, Any]
    """Name, platform, inputs and outputs, as the v2 protocol has them; shapes include the batch."""
    config: dict[str, Any]
    """Its completed configuration, as the model configuration extension has it."""


@dataclass(frozen=True)
class TextModel:
    """One model that the text server has, loaded or not."""

    name: str
    """As clients name it, with its tag."""
    capabilities: frozenset[str]
    """Of ``completion``, ``tools``, ``embedding``, ``vision``, ``thinking``, ``insert``, ``rerank``."""
    context_length: int
    """Tokens it was trained on; 0 where its file does not say."""

    @property
    def short(self) -> str:
        """Its name as people write it, without the tag that goes without saying."""
        return self.name.removesuffix(":latest")


@dataclass(frozen=True)
class Address:
    """One server, as this machine reaches it and as the neighbour does."""

    here: str
    """``http://127.0.0.1:8000``."""
    theirs: str
    """The same from where the neighbour runs: a container names this machine otherwise."""
    credentials: Credentials | None = field(default=None, repr=False, compare=False)
    """What this machine shows the server when it asks; None for those of the environment."""

    @property
    def wants_key(self) -> bool:
        """Whether the server wants an API key, as far as is known here: one is shown to it then."""
        shown = self.credentials or Credentials.from_environment()
        return "authorization" in {name.lower() for name in shown.headers}


@dataclass(frozen=True)
class Site:
    """Both servers and what they have; a server that does not answer is None and has no models."""

    tensor: Address | None
    metrics: Address | None
    text: Address | None
    models: tuple[TensorModel, ...] = ()
    text_models: tuple[TextModel, ...] = ()

    @property
    def wants_key(self) -> bool:
        """Whether one of the servers does."""
        return any(address is not None and address.wants_key for address in (self.tensor, self.text))


def survey(tensor: Client | None, metrics_url: str | None, text: TextClient | None, *, host: str | None = None) -> Site:
    """Ask both servers what they have. ``host``: the name under which the neighbour reaches this machine.

    Raises UNAVAILABLE when none of them answers.
    """
    tensor = tensor if tensor and tensor.live() else None
    text = text if text and text.live() else None
    if tensor is None and text is None:
        raise ServeError(Code.UNAVAILABLE, "neither server answers; start them with 'bident up'")
    return Site(
        tensor=_address(tensor.url, host, tensor.credentials) if tensor else None,
        metrics=_address(metrics_url, host, tensor.credentials) if tensor and metrics_url else None,
        text=_address(text.url, host, text.credentials) if text else None,
        models=tuple(_tensor_models(tensor)) if tensor else (),
        text_models=tuple(_text_models(text)) if text else (),
    )


def _address(url: str, host: str | None, credentials: Credentials) -> Address:
    return Address(url, url if host is None else at_host(url, host), credentials)


def at_host(url: str, host: str) -> str:
    """``url`` with the name or address ``host`` in place of its own."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}{parts.path}"


def _tensor_models(client: Client) -> Iterable[TensorModel]:
    ready = {entry["name"]: str(entry["version"]) for entry in client.index() if entry.get("state") == "READY"}
    for name, version in sorted(ready.items()):
        try:
            yield TensorModel(name, version, client.metadata(name), client.config(name))
        except ServeError as error:
            if error.code is not Code.NOT_FOUND:
                raise
            # It has been unloaded since it was listed.


def _text_models(client: TextClient) -> Iterable[TextModel]:
    for entry in client.models():
        if entry.get("fault"):
            continue  # it is listed, and cannot be used
        try:
            shown = client.show(entry["name"])
        except ServeError as error:
            if error.code is not Code.NOT_FOUND:
                raise
            continue  # deleted since it was listed
        facts = shown.get("model_info") or {}
        length = next((value for key, value in facts.items() if key.endswith(".context_length")), 0)
        yield TextModel(entry["name"], frozenset(shown.get("capabilities") or ()), int(length))
