"""Makes models of a store: from GGUF files, from other models, and from what a Modelfile adds to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from bident.errors import invalid_arg
from bident.text.capabilities import parameter_size
from bident.text.gguf import GgufFacts, read_facts
from bident.text.model import TextModel
from bident.text.names import ModelName
from bident.text.parameters import checked
from bident.text.store.blobs import parse_digest
from bident.text.store.jobs import Report
from bident.text.store.manifests import (
    CONFIG_TYPE,
    LARGEST,
    Layer,
    Manifest,
    layer_type,
    make_manifest,
)
from bident.text.store.own import OwnStore
from bident.text.store.reading import read_blob, read_config
from bident.text.store.shelf import FileShelf, LibraryShelf, is_gguf
from bident.text.template.parser import parse as parse_template
from bident.wire.text import Message

_KINDS = {"model": "model", "adapter": "adapter", "mmproj": "projector"}
_CARRIED = ("renderer", "parser", "requires")


@dataclass(frozen=True, kw_only=True)
class Creation:
    """What ``/api/create`` is asked for. One of ``base``, the name of a model, and ``files`` is needed.

    ``files`` and ``adapters`` are digests of uploaded blobs by file name. None or empty leaves what the
    base has; ``parameters`` are added to the base's, and so is ``licenses``.
    """

    name: ModelName
    base: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    adapters: Mapping[str, str] = field(default_factory=dict)
    template: str | None = None
    system: str | None = None
    licenses: Sequence[str] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    messages: Sequence[Message] = ()
    quantize: str = ""
    renderer: str = ""
    parser: str = ""
    requires: str = ""


def check_creation(creation: Creation) -> None:
    """Raise INVALID_ARG for what can be seen to be wrong before any work is done."""
    if not creation.base and not creation.files:
        raise invalid_arg("neither 'from' or 'files' was specified")
    if creation.base and creation.files:
        raise invalid_arg("give 'from' or 'files', not both: a model starts from one of them")
    if creation.quantize:
        raise invalid_arg(
            "quantize is not supported here: quantize the file with llama.cpp's llama-quantize and create from that"
        )
    for name, digest in (*creation.files.items(), *creation.adapters.items()):
        if not name or name.startswith("/") or "\\" in name or ":" in name or ".." in name.split("/"):
            raise invalid_arg(f"invalid file name {name[:80]!r}: file names are relative, without '..'")
        if not isinstance(digest, str):
            raise invalid_arg(f"the digest of {name!r} must be a text")
        parse_digest(digest)
    if creation.template is not None:
        parse_template(creation.template)
    checked(creation.parameters)


class Maker:
    """Turns Creations into manifests of the store ``own``; bases come from any of ``shelves`` and ``files``."""

    def __init__(self, own: OwnStore, shelves: Sequence[LibraryShelf], files: Sequence[FileShelf]) -> None:
        self._own = own
        self._shelves = shelves
        self._files = files

    def make(self, creation: Creation, report: Report) -> None:
        """Make the model, and remove what only its predecessor needed. Blocks.

        Raises INVALID_ARG, NOT_FOUND for a base or a blob that is missing, INTERNAL when the disk is full.
        """
        check_creation(creation)
        with self._own.blobs.holding() as held:
            config: dict[str, Any] = {}
            layers: list[Layer] = []
            if creation.base:
                config, layers = self._inherited(creation.base, held)
            for kind, digests in (("", creation.files), ("adapter", creation.adapters)):
                layers += [self._file_layer(name, digest, kind, held, report) for name, digest in digests.items()]
            weights = sum(layer.kind == "model" for layer in layers)
            if weights != 1:
                found = "several files of weights" if weights else "no weights"
                raise invalid_arg(f"{found}: give one .gguf file of a model, or the name of a model to start from")
            layers = self._declared(creation, layers, held, report)
            manifest = self._manifest(creation, config, layers, held, report)
            report("writing manifest")
            self._own.commit(creation.name, manifest)
        report("success")

    def _inherited(self, base: str, held: set[str]) -> tuple[dict[str, Any], list[Layer]]:
        """The config and layers of the model ``base``, with all of its blobs in our own store."""
        name = ModelName.parse(base)
        for shelf in self._shelves:
            found = shelf.manifest_of(name)
            if found is not None:
                spelled, manifest = found
                self._own.adopt(manifest, shelf, held)
                origin = spelled.short
                layers = [
                    Layer(layer.media_type, layer.digest, layer.size, origin) if layer.kind == "model" else layer
                    for layer in manifest.layers
                ]
                return read_config(manifest, self._own.blob_path), layers
        model = next((model for files in self._files if (model := files.find(name))), None)
        if model is None:
            raise self._own.not_found(base)
        if model.fault:
            raise invalid_arg(f"model '{base}' cannot be used: {model.fault}")
        layers = [self._bare_layer(path, kind, held) for path, kind in _bare_files(model)]
        return _described(model.facts, layers), layers

    def _bare_layer(self, path: Path, kind: str, held: set[str]) -> Layer:
        digest = self._own.take_in(path, None, held)
        return Layer(layer_type(kind), digest, self._own.blobs.path(digest).stat().st_size)

    def _file_layer(self, name: str, digest: str, kind: str, held: set[str], report: Report) -> Layer:
        digest = parse_digest(digest)
        self._own.blobs.hold(digest, held)
        path = self._own.blobs.path(digest)
        if not path.is_file():
            raise invalid_arg(f"the blob {digest} of {name!r} has not been uploaded: POST /api/blobs/{digest} first")
        if not is_gguf(path):
            raise invalid_arg(f"unknown type: {name!r} is not a GGUF file; convert other formats to GGUF first")
        report("parsing GGUF")
        facts = read_facts(path)
        found = _KINDS.get(facts.kind, "model")
        if kind and found != kind:
            raise invalid_arg(f"{name!r} is a {found}, not an {kind}")
        report(f"using existing layer {digest}")
        return Layer(layer_type(found), digest, path.stat().st_size)

    def _declared(self, creation: Creation, layers: list[Layer], held: set[str], report: Report) -> list[Layer]:
        """``layers`` with what the creation declares in place of, or added to, what was there."""
        if creation.template is not None:
            layers = self._replaced(layers, "template", creation.template.encode(), held, report)
        if creation.system is not None:
            layers = self._replaced(layers, "system", creation.system.encode(), held, report)
        if creation.parameters:
            merged: dict[str, Any] = {}
            for layer in layers:
                if layer.kind == "params":
                    merged.update(orjson.loads(read_blob(self._own.blobs.path(layer.digest))))
            merged.update(checked(creation.parameters))
            layers = self._replaced(layers, "params", orjson.dumps(merged), held, report)
        if creation.messages:
            turns = [{"role": message.role, "content": message.content} for message in creation.messages]
            layers = self._replaced(layers, "messages", orjson.dumps(turns), held, report)
        known = {layer.digest for layer in layers if layer.kind == "license"}
        for text in creation.licenses:
            layer = self._small_layer("license", text.encode("utf-8", "replace"), held, report)
            if layer.digest not in known:
                known.add(layer.digest)
                layers = [*layers, layer]
        return layers

    def _replaced(self, layers: list[Layer], kind: str, content: bytes, held: set[str], report: Report) -> list[Layer]:
        rest = [layer for layer in layers if layer.kind != kind]
        return [*rest, self._small_layer(kind, content, held, report)] if content else rest

    def _small_layer(self, kind: str, content: bytes, held: set[str], report: Report) -> Layer:
        if len(content) > LARGEST:
            raise invalid_arg(f"the {kind} has {len(content)} bytes, {LARGEST} are the most")
        digest, fresh = self._own.put_small(content, held)
        report(f"{'creating new' if fresh else 'using existing'} layer {digest}")
        return Layer(layer_type(kind), digest, len(content))

    def _manifest(
        self, creation: Creation, config: dict[str, Any], layers: list[Layer], held: set[str], report: Report
    ) -> Manifest:
        weights = next(layer for layer in layers if layer.kind == "model")
        if not creation.base:
            config = {**config, **_described(read_facts(self._own.blobs.path(weights.digest)), layers)}
        for key in _CARRIED:
            if value := getattr(creation, key):
                config[key] = value
        config.update(
            os="linux",
            architecture="amd64",
            rootfs={"type": "layers", "diff_ids": [layer.digest for layer in layers]},
        )
        content = orjson.dumps(config)
        digest, _ = self._own.put_small(content, held)
        return make_manifest(Layer(CONFIG_TYPE, digest, len(content)), layers)


def _bare_files(model: TextModel) -> list[tuple[Path, str]]:
    projector = [(model.projector, "projector")] if model.projector else []
    return [(model.weights, "model"), *projector]


def _described(facts: GgufFacts, layers: Sequence[Layer]) -> dict[str, Any]:
    """What the config of a model says of its weights."""
    families = [facts.architecture]
    if any(layer.kind == "projector" for layer in layers):
        families.append("clip")
    return {
        "model_format": "gguf",
        "model_family": facts.architecture,
        "model_families": families,
        "model_type": parameter_size(facts.parameter_count),
        "file_type": facts.quantization,
    }
