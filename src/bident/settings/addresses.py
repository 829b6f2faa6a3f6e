"""Addresses as the text server's settings have them: where to listen, who may ask, who answers instead."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from bident.settings.values import Kind

_SCHEME_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Address:
    """A host, and a port where one was said."""

    host: str
    port: int | None = None

    def __str__(self) -> str:
        return self.host if self.port is None else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Upstream:
    """Who answers for ``model``; for all models where that is empty.

    ``kind`` is ``auto``, ``none``, ``ollama`` or ``openai``; the last two have a ``url`` without a
    slash at its end.
    """

    kind: str
    url: str = ""
    model: str = ""

    def __str__(self) -> str:
        answers = f"{self.kind}:{self.url}" if self.url else self.kind
        return f"{self.model}={answers}" if self.model else answers


def is_web_address(url: str) -> bool:
    """Whether ``url`` is an http or https address with a host, and a port that can be if any."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    return parts.scheme in _SCHEME_PORTS and bool(parts.hostname) and port != 0


def _host(text: str) -> Address:
    """``host``, ``host:port`` or ``scheme://host[:port]``, as Ollama reads its OLLAMA_HOST."""
    refusal = ValueError(f"Got {text}; expected an address as in 127.0.0.1, 127.0.0.1:11434 or http://127.0.0.1:11434")
    scheme, separator, rest = text.rpartition("://")
    if separator and scheme not in _SCHEME_PORTS:
        raise refusal
    bare = rest.partition("/")[0]
    if bare.count(":") > 1 and not bare.startswith("["):  # IPv6 as people write it
        bare = f"[{bare}]"
    try:
        parts = urlsplit(f"//{bare}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise refusal from None
    if parts.username is not None or any(letter.isspace() for letter in bare):
        raise refusal
    return Address(host or "127.0.0.1", port if port is not None else _SCHEME_PORTS.get(scheme))


def _upstream(text: str) -> Upstream:
    """``[model=]auto``, ``none``, ``ollama:url`` or ``openai:url``."""
    model, equals, answers = text.partition("=") if not text.startswith(("ollama:", "openai:")) else ("", "", text)
    if not equals:
        model, answers = "", text
    elif not model:
        raise ValueError(f"Got {text}: the model before the = is missing")
    if answers == "none" or (answers == "auto" and not model):
        return Upstream(answers, model=model)
    kind, _, url = answers.partition(":")
    if kind not in ("ollama", "openai") or not is_web_address(url) or urlsplit(url).query:
        raise ValueError(
            f"Got {text}; expected none, ollama:<url> or openai:<url>, as in ollama:http://127.0.0.1:11434, with "
            "<model>= in front for one model alone, or auto for all"
        )
    return Upstream(kind, url.rstrip("/"), model)


def _upstreams(found: list[Upstream]) -> tuple[Upstream, ...]:
    """The one for all models comes last and is ``auto`` where none was given."""
    by_model = {each.model: each for each in found}
    default = by_model.pop("", Upstream("auto"))
    return (*by_model.values(), default)


def _origin(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (each.strip().rstrip("/") for each in text.split(","))))


def _origins(found: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(origin for each in found for origin in each)


HOST = Kind("<host>[:<port>]", _host)
ORIGINS = Kind("<origin>", _origin, _origins)
UPSTREAMS = Kind("[<model>=]auto|none|ollama:<url>|openai:<url>", _upstream, _upstreams)
