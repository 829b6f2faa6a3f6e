"""GGUF files of Hugging Face's repositories (its Hub API: ``/api/models/<repository>``)."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
import orjson

from bident.errors import Code, ServeError
from bident.text.store.download import Wanted
from bident.text.store.source import Source
from bident.text.store.web import explained, refused, small_body

_HOME = "https://huggingface.co"
_LARGEST = 16 << 20
_PREFERRED = ("q4_k_m", "q4_k_s", "q4_0", "q5_k_m", "q8_0", "f16", "bf16")
"""What most people want who do not say which: small, and still good."""
_PART = re.compile(r"-\d+-of-\d+\.gguf$", re.IGNORECASE)
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Choice:
    """The files to fetch, the weights first, and the licence as the repository calls it."""

    files: tuple[Wanted, ...]
    license: str


def choose(client: httpx.Client, source: Source) -> Choice:
    """What to fetch for ``source``. Raises NOT_FOUND with the files that there are, UNAVAILABLE, INVALID_ARG."""
    home = os.environ.get("HF_ENDPOINT", "").rstrip("/") or _HOME
    token = os.environ.get("HF_TOKEN", "")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    what = "pull model manifest"
    url = f"{home}/api/models/{source.place}"
    with explained(what), client.stream("GET", url, params={"blobs": "true"}, headers=headers) as response:
        if response.status_code != 200:
            raise refused(response, what)
        body = small_body(response, what, _LARGEST)
    try:
        document = orjson.loads(body)
        entries = {entry["rfilename"]: entry for entry in document["siblings"] if isinstance(entry["rfilename"], str)}
    except (ValueError, KeyError, TypeError) as error:
        raise ServeError(
            Code.UNAVAILABLE, f"{what}: {httpx.URL(home).host} answered without a list of files"
        ) from error
    names = _chosen(source, sorted(name for name in entries if name.lower().endswith(".gguf")))
    files = [
        _wanted(f"{home}/{source.place}/resolve/main/{quote(name)}", name, entries[name], headers) for name in names
    ]
    card = document.get("cardData")
    license_name = card.get("license") if isinstance(card, dict) else None
    return Choice(tuple(files), license_name if isinstance(license_name, str) else "")


def _chosen(source: Source, names: list[str]) -> list[str]:
    """The weights, and the projector of a vision model."""
    projectors = [name for name in names if "mmproj" in name.lower()]
    weights = [name for name in names if name not in projectors]
    if source.member:
        found = [name for name in names if name == source.member]
    elif source.tag:
        found = [name for name in weights if source.tag.lower() in name.lower()]
    else:
        preferred = (name for kind in _PREFERRED for name in weights if kind in name.lower())
        found = [next(preferred, weights[0])] if weights else []
    if not found:
        there = ", ".join(names[:20]) or "none"
        wanted = source.member or source.tag or "a .gguf file"
        raise ServeError(
            Code.NOT_FOUND, f"pull model manifest: {source.place} has no {wanted}; its GGUF files: {there}"
        )
    if _PART.search(found[0]):
        raise ServeError(
            Code.UNSUPPORTED,
            f"{found[0]} is one of several parts: download them all and join them with llama.cpp's llama-gguf-split",
        )
    return [found[0], *(projectors[:1] if not source.member else [])]


def _wanted(url: str, name: str, entry: dict[str, Any], headers: dict[str, str]) -> Wanted:
    stored = entry.get("lfs")
    known = stored.get("sha256") if isinstance(stored, dict) else None
    digest = f"sha256:{known}" if isinstance(known, str) and _SHA256.fullmatch(known) else ""
    size = entry.get("size")
    return Wanted(url, name.rpartition("/")[2], digest, size if isinstance(size, int) and size > 0 else 0, headers)
