"""What the tests of the store share."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson

from bident.text.names import ModelName
from bident.text.store.library import Library
from bident.text.store.making import Creation
from tests.unit.text.gguf_files import LLAMA, gguf_bytes


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


async def statuses(following: AsyncIterator[dict[str, Any]]) -> list[dict[str, Any]]:
    return [status async for status in following]


async def upload(library: Library, content: bytes) -> str:
    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(content), 1000):
            yield content[start : start + 1000]

    digest = sha256(content)
    await library.put_blob(digest, chunks())
    return digest


async def make(library: Library, name: str, *, seed: int = 0, **more: Any) -> None:
    """A small model called ``name``, the weights of which depend on ``seed``."""
    digest = await upload(library, gguf_bytes(seed=seed))
    await statuses(library.create(Creation(name=ModelName.parse(name), files={"a.gguf": digest}, **more)))


def visible(root: Path) -> set[str]:
    """Every file below ``root`` that tells of a model, and what should not be left behind."""
    return {
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.is_file() and path.name not in (".lock", "verified.json")
    }


def write_foreign(root: Path, *names: str, layers: dict[str, bytes] | None = None, config: Any = None) -> None:
    """Models in a library as Ollama writes it: with a template by its old name, and a licence."""
    weights = gguf_bytes(LLAMA)
    contents = {"model": weights, "prompt": b"{{ .Prompt }}", "license": b"MIT", **(layers or {})}
    described = config or {"model_format": "gguf", "model_family": "llama", "model_type": "1B", "file_type": "Q4_0"}
    raw_config = orjson.dumps(described)
    blobs = root / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    for content in (raw_config, *contents.values()):
        (blobs / sha256(content).replace(":", "-")).write_bytes(content)
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": {
            "mediaType": "application/vnd.docker.container.image.v1+json",
            "digest": sha256(raw_config),
            "size": len(raw_config),
        },
        "layers": [
            {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": sha256(content), "size": len(content)}
            for kind, content in contents.items()
        ],
    }
    for text in names:
        name = ModelName.parse(text)
        path = root / "manifests" / name.host / name.namespace / name.model / name.tag
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(orjson.dumps(manifest))
