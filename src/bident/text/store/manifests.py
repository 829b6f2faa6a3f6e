"""Manifests: which blobs make a model. The format of Docker's registries with Ollama's media types.

A manifest is ``manifests/<host>/<namespace>/<model>/<tag>``; the digest of a model is that of the
file's bytes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from bident.errors import MalformedError, ServeError
from bident.text.names import ModelName
from bident.text.store.blobs import parse_digest

MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG_TYPE = "application/vnd.docker.container.image.v1+json"
_IMAGE = "application/vnd.ollama.image."
LARGEST = 4 << 20
"""Bytes of a manifest, or of any blob but the weights."""
_MOST_LAYERS = 4096


@dataclass(frozen=True)
class Layer:
    """A blob and what it is. ``origin`` is the model that it was taken from, if it was."""

    media_type: str
    digest: str
    size: int
    origin: str = ""

    @property
    def kind(self) -> str:
        """``model``, ``projector``, ``adapter``, ``template``, ``system``, ``params``, ... ; "" of a stranger's."""
        kind = self.media_type.removeprefix(_IMAGE)
        return "template" if kind == "prompt" else "" if kind == self.media_type else kind


@dataclass(frozen=True)
class Manifest:
    """``digest`` is 64 hexadecimal digits; ``content`` the bytes it is of."""

    config: Layer
    layers: tuple[Layer, ...]
    content: bytes

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def digests(self) -> frozenset[str]:
        """Of all blobs."""
        return frozenset(layer.digest for layer in (self.config, *self.layers))

    @property
    def size(self) -> int:
        return self.config.size + sum(layer.size for layer in self.layers)

    def of(self, kind: str) -> list[Layer]:
        return [layer for layer in self.layers if layer.kind == kind]


def layer_type(kind: str) -> str:
    """The media type of a layer of that kind."""
    return _IMAGE + kind


def make_manifest(config: Layer, layers: list[Layer]) -> Manifest:
    """The manifest that lists these blobs."""
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": _written(config),
        "layers": [_written(layer) for layer in layers],
    }
    return Manifest(config, tuple(layers), orjson.dumps(document))


def parse_manifest(content: bytes, what: str) -> Manifest:
    """Read the bytes of a manifest. Raises MalformedError saying ``what`` is wrong."""
    try:
        document = orjson.loads(content)
        if not isinstance(document.get("layers"), list) or len(document["layers"]) > _MOST_LAYERS:
            raise TypeError("it has no list of layers")
        config, *layers = [_layer(entry) for entry in (document["config"], *document["layers"])]
    except (ValueError, TypeError, KeyError, AttributeError, ServeError) as error:
        raise MalformedError(f"{what} is not a manifest: {error}") from None
    return Manifest(config, tuple(layers), content)


def read_manifest(path: Path) -> Manifest:
    """The manifest in the file ``path``. Raises MalformedError, OSError."""
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise MalformedError(f"{path} is not a manifest: it has more than {LARGEST} bytes")
    return parse_manifest(content, str(path))


def manifest_path(root: Path, name: ModelName) -> Path:
    """Where the manifest of a name of exactly this case is, or would be."""
    host = name.host.replace(":", "+") if os.name == "nt" else name.host
    return root / "manifests" / host / name.namespace / name.model / name.tag


def stored_names(root: Path) -> Iterator[tuple[ModelName, Path]]:
    """Every name that has a manifest below ``root``, in order; what is named otherwise is no manifest."""
    for path in sorted((root / "manifests").glob("*/*/*/*")):
        *_, host, namespace, model, tag = path.parts
        if os.name == "nt":
            host = host.replace("+", ":")
        try:
            name = ModelName.parse(f"{host}/{namespace}/{model}:{tag}")
        except ServeError:
            continue
        if _is_file(path):
            yield name, path


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a folder of another user
        return False


def _written(layer: Layer) -> dict[str, Any]:
    entry: dict[str, Any] = {"mediaType": layer.media_type, "digest": layer.digest, "size": layer.size}
    return {**entry, "from": layer.origin} if layer.origin else entry


def _layer(entry: Any) -> Layer:
    media_type, size, origin = entry["mediaType"], entry["size"], entry.get("from", "")
    if not isinstance(media_type, str) or not isinstance(size, int) or size < 0:
        raise TypeError("a layer has no mediaType or size")
    return Layer(media_type, parse_digest(entry["digest"]), size, origin if isinstance(origin, str) else "")
