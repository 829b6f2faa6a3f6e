"""What text models are called: ``[host/][namespace/]model[:tag]``, as Ollama has it (api.md, "Model names").

What is left out is ``registry.ollama.ai``, ``library`` and ``latest``. Names become paths of the store,
so what is not spelled out here is refused: no part can be ``..``, hold a separator or be empty.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bident.errors import ServeError, invalid_arg

DEFAULT_HOST = "registry.ollama.ai"
DEFAULT_NAMESPACE = "library"
DEFAULT_TAG = "latest"

_PARTS = {
    "host": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,349}"),
    "namespace": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,79}"),
    "model": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}"),
    "tag": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}"),
}
_SCHEMES = ("https://", "http://")
_LONGEST = 350 + 3 * 81
_SHOWN = 80


@dataclass(frozen=True)
class ModelName:
    """A whole name; every part is set and valid. Two names are the same model when their ``key`` is the same."""

    host: str
    namespace: str
    model: str
    tag: str

    @classmethod
    def parse(cls, text: str) -> ModelName:
        """The name that ``text`` stands for, with its case kept. Raises INVALID_ARG ``invalid model name``."""
        rest = text
        for scheme in _SCHEMES:
            rest = rest.removeprefix(scheme)
        if len(rest) > _LONGEST:
            raise _invalid(text, f"it has {len(rest)} characters, {_LONGEST} are the most")
        *before, last = rest.split("/")
        if len(before) > 2:
            raise _invalid(text, "it has too many '/': [host/][namespace/]model[:tag]")
        model, colon, tag = last.partition(":")
        namespace = before[-1] if before else DEFAULT_NAMESPACE
        host = before[0] if len(before) == 2 else DEFAULT_HOST
        parts = {"host": host, "namespace": namespace, "model": model, "tag": tag if colon else DEFAULT_TAG}
        for part, value in parts.items():
            if not _PARTS[part].fullmatch(value):
                raise _invalid(text, f"its {part} is {_quoted(value)}")
        return cls(**parts)

    @property
    def short(self) -> str:
        """The shortest form that means the same, with the tag: ``smollm2:latest``."""
        path = f"{self.model}:{self.tag}"
        if (self.host, self.namespace) == (DEFAULT_HOST, DEFAULT_NAMESPACE):
            return path
        return f"{self.namespace}/{path}" if self.host == DEFAULT_HOST else f"{self.host}/{self.namespace}/{path}"

    @property
    def full(self) -> str:
        return f"{self.host}/{self.namespace}/{self.model}:{self.tag}"

    @property
    def key(self) -> str:
        """What names are compared by: models are found in either case."""
        return self.full.lower()

    def __str__(self) -> str:
        return self.short


def _invalid(text: str, reason: str) -> ServeError:
    return invalid_arg(
        f"invalid model name {_quoted(text)}: {reason}; a name is [host/][namespace/]model[:tag] of letters, "
        "digits, '_', '-' and '.', each part starting with a letter, a digit or '_'"
    )


def _quoted(text: str) -> str:
    return f'"{text}"' if len(text) <= _SHOWN else f'"{text[:_SHOWN]}..."'
