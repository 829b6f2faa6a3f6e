"""Turns a manifest and its blobs into a TextModel."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import orjson

from bident.errors import ServeError, invalid_arg
from bident.text.capabilities import capabilities_of, parameter_size
from bident.text.gguf import GgufFacts, read_facts
from bident.text.model import Details, TextModel
from bident.text.names import ModelName
from bident.text.parameters import checked
from bident.text.store.manifests import LARGEST, Layer, Manifest, read_manifest
from bident.wire.text import Message

Locate = Callable[[str], Path]
"""Where the blob of a digest is or would be."""


def read_model(name: ModelName, path: Path, locate: Locate, *, read_only: bool) -> TextModel | None:
    """The model of the manifest at ``path``. Blocks for some milliseconds.

    What is wrong with its files becomes its ``fault``. None of what is not a GGUF model at all
    (another format, or one of a cloud) and of a manifest that is gone.
    """
    modified = None
    manifest: Manifest | None = None
    config: dict[str, Any] = {}
    try:
        modified = datetime.fromtimestamp(path.stat().st_mtime, timezone.utc)
        manifest = read_manifest(path)
        config = read_config(manifest, locate)
        if config.get("model_format", "gguf") != "gguf" or config.get("remote_host"):
            return None
        return _model(name, manifest, config, locate, modified, read_only)
    except FileNotFoundError as error:
        if modified is None:
            return None
        fault = f"its file {Path(error.filename).name} is missing"
    except (ServeError, OSError, ValueError) as error:
        fault = str(error)
    if modified is None:
        return None
    return _broken(name, manifest, config, modified, read_only, fault)


def read_config(manifest: Manifest, locate: Locate) -> dict[str, Any]:
    """The config blob. Raises OSError, ValueError."""
    config = orjson.loads(read_blob(locate(manifest.config.digest)))
    if not isinstance(config, dict):
        raise ValueError("its config is not an object")
    return config


def read_blob(path: Path) -> bytes:
    """A blob that is no weights. Raises OSError, INVALID_ARG when it is too large to be that."""
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise invalid_arg(f"its file {path.name} has more than {LARGEST} bytes")
    return content


def _model(
    name: ModelName, manifest: Manifest, config: dict[str, Any], locate: Locate, modified: datetime, read_only: bool
) -> TextModel:
    weights = manifest.of("model")
    if not weights:
        raise ValueError("it has no weights")
    projector = next((locate(layer.digest) for layer in manifest.of("projector")), None)
    adapters = tuple(locate(layer.digest) for layer in manifest.of("adapter"))
    for path in (projector, *adapters):
        if path is not None:
            path.stat()
    facts = read_facts(locate(weights[0].digest))
    template = _last_text(manifest, "template", locate)
    return TextModel(
        name=name,
        digest=manifest.digest,
        size=manifest.size,
        modified_at=modified,
        weights=locate(weights[0].digest),
        facts=facts,
        projector=projector,
        adapters=adapters,
        template=template,
        system=_last_text(manifest, "system", locate) or "",
        parameters=_parameters(manifest, locate),
        messages=_messages(manifest, locate),
        license=tuple(_text(layer, locate) for layer in manifest.of("license")),
        details=_details(config, facts, weights[0].origin),
        capabilities=capabilities_of(facts, template, projector is not None),
        read_only=read_only,
        renderer=_word(config, "renderer"),
        parser=_word(config, "parser"),
        requires=_word(config, "requires"),
    )


def _broken(
    name: ModelName,
    manifest: Manifest | None,
    config: dict[str, Any],
    modified: datetime,
    read_only: bool,
    fault: str,
) -> TextModel:
    return TextModel(
        name=name,
        digest=manifest.digest if manifest else "",
        size=manifest.size if manifest else 0,
        modified_at=modified,
        weights=Path(),
        facts=GgufFacts(),
        details=_details(config, GgufFacts(), ""),
        read_only=read_only,
        fault=fault,
    )


def _details(config: dict[str, Any], facts: GgufFacts, parent: str) -> Details:
    families = config.get("model_families")
    family = _word(config, "model_family") or facts.architecture
    size = parameter_size(facts.parameter_count) if facts.parameter_count else ""
    known = families if isinstance(families, list) else [family]
    return Details(
        parent_model=parent,
        family=family,
        families=tuple(str(each) for each in known if each),
        parameter_size=_word(config, "model_type") or size,
        quantization_level=_word(config, "file_type") or facts.quantization,
    )


def _parameters(manifest: Manifest, locate: Locate) -> dict[str, Any]:
    """A foreign library may hold parameters that are no longer known: those are left out, not an error."""
    typed: dict[str, Any] = {}
    for layer in manifest.of("params"):
        values = orjson.loads(read_blob(locate(layer.digest)))
        if not isinstance(values, dict):
            raise ValueError("its parameters are not an object")
        for key, value in values.items():
            try:
                typed.update(checked({key: value}))
            except ServeError:
                continue
    return typed


def _messages(manifest: Manifest, locate: Locate) -> tuple[Message, ...]:
    found: list[Message] = []
    for layer in manifest.of("messages"):
        entries = orjson.loads(read_blob(locate(layer.digest)))
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ValueError("its messages are not a list of objects")
        found += [Message(str(entry.get("role", "")), str(entry.get("content", ""))) for entry in entries]
    return tuple(found)


def _last_text(manifest: Manifest, kind: str, locate: Locate) -> str | None:
    layers = manifest.of(kind)
    return _text(layers[-1], locate) if layers else None


def _text(layer: Layer, locate: Locate) -> str:
    return read_blob(locate(layer.digest)).decode("utf-8", "replace")


def _word(config: dict[str, Any], key: str) -> str:
    value = config.get(key)
    return value if isinstance(value, str) else ""
