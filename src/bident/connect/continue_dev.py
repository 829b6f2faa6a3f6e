"""Continue: the assistant in VS Code and JetBrains, with the text engine's models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bident.connect.neighbour import File, Hop, Neighbour, Wanted, until_failure
from bident.connect.site import Address, Site, TextModel
from bident.connect.text_way import some_model, text_address, text_hops
from bident.yaml import to_yaml

_CHAT = ["chat", "edit", "apply"]
_ROLES = {"insert": "autocomplete", "embedding": "embed", "rerank": "rerank"}
"""What a model can -> what Continue then uses it for."""
_CAPABILITIES = {"tools": "tool_use", "vision": "image_input"}


class Continue(Neighbour):
    """Asks the text server as it asks Ollama."""

    name = "continue"
    summary = "the assistant in VS Code and JetBrains: its config.yaml with the text models"

    def files(self, site: Site, wanted: Wanted) -> list[File]:
        some_model(site, wanted)
        address = text_address(site)
        models = [_entry(model, address) for model in site.text_models if _roles(model) and wanted.includes(model.name)]
        document = {"name": "Bident", "version": "1.0.0", "schema": "v1", "models": models}
        return [File("config.yaml", to_yaml(document), "Continue's configuration; it lies in ~/.continue")]

    def steps(self, site: Site, wanted: Wanted) -> list[str]:
        return [
            "bident connect continue --write ~/.continue   (is one there already: copy the models into it)",
            "Reload the editor's window, and choose a model in Continue's panel.",
            "bident connect continue --check",
        ]

    def check(self, site: Site, wanted: Wanted) -> Iterator[Hop]:
        return until_failure(text_hops(site, wanted))


def _roles(model: TextModel) -> list[str]:
    chat = _CHAT if "completion" in model.capabilities else []
    return [*chat, *(role for capability, role in _ROLES.items() if capability in model.capabilities)]


def _entry(model: TextModel, address: Address) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": model.short,
        "provider": "ollama",
        "model": model.name,
        "apiBase": address.theirs,
        "roles": _roles(model),
    }
    able_to = [name for capability, name in _CAPABILITIES.items() if capability in model.capabilities]
    return {**entry, "capabilities": able_to} if able_to else entry
