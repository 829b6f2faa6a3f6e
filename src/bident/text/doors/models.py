"""Models as Ollama's endpoints describe them."""

from __future__ import annotations

from typing import Any

from bident.text.answering.asked import RemoteModel
from bident.text.doors.moments import FOREVER, UNKNOWN, utc_moment
from bident.text.model import Details, TextModel
from bident.text.runner.residency import Running
from bident.text.store.card import ModelCard
from bident.wire.text import Message


def listed_object(model: TextModel) -> dict[str, Any]:
    """A model in ``/api/tags``. One that cannot be used has a ``fault``, which is ours, that says why."""
    shown = {
        "name": model.name.short,
        "model": model.name.short,
        "modified_at": utc_moment(model.modified_at),
        "size": model.size,
        "digest": model.digest,
        "details": _details(model),
        "capabilities": sorted(model.capabilities),
    }
    return shown | ({"fault": model.fault} if model.fault else {})


def remote_object(model: RemoteModel) -> dict[str, Any]:
    """A model of another server in ``/api/tags``, as Ollama writes those of its cloud; the name as it is there."""
    return {
        "name": model.name,
        "model": model.name,
        "remote_model": model.name,
        "remote_host": model.url,
        "modified_at": UNKNOWN,
        "size": 0,
        "digest": "",
        "details": _named_details(Details(format="")),
    }


def remote_card(model: RemoteModel) -> dict[str, Any]:
    """The same in ``/api/show``: what it is and can do, only its server knows."""
    return {
        "remote_model": model.name,
        "remote_host": model.url,
        "details": _named_details(Details(format="")),
        "model_info": {},
        "capabilities": ["completion"],
        "modified_at": UNKNOWN,
    }


def running_object(running: Running) -> dict[str, Any]:
    """A loaded model in ``/api/ps``."""
    model = running.model
    return {
        "name": model.name.short,
        "model": model.name.short,
        "size": running.size,
        "digest": model.digest,
        "details": _details(model),
        "expires_at": FOREVER if running.expires_at is None else utc_moment(running.expires_at),
        "size_vram": 0,
        "context_length": running.context_length,
    }


def card_object(card: ModelCard) -> dict[str, Any]:
    """All about a model, in ``/api/show``."""
    model = card.model
    shown = {
        "license": "\n".join(model.license),
        "modelfile": card.modelfile,
        "parameters": card.parameters,
        "template": card.template,
        "system": model.system,
        "renderer": model.renderer,
        "parser": model.parser,
        "requires": model.requires,
        "messages": [_message(each) for each in model.messages],
        "projector_info": card.projector_info,
        "tensors": card.tensors,
    }
    return {name: value for name, value in shown.items() if value} | {
        "details": _details(model),
        "model_info": card.model_info,
        "capabilities": sorted(model.capabilities),
        "modified_at": utc_moment(model.modified_at),
    }


def _details(model: TextModel) -> dict[str, Any]:
    return _named_details(model.details) | {
        "context_length": model.facts.context_length,
        "embedding_length": model.facts.embedding_length,
    }


def _named_details(details: Details) -> dict[str, Any]:
    return {
        "parent_model": details.parent_model,
        "format": details.format,
        "family": details.family,
        "families": [*details.families],
        "parameter_size": details.parameter_size,
        "quantization_level": details.quantization_level,
    }


def _message(message: Message) -> dict[str, str]:
    return {"role": message.role, "content": message.content}
