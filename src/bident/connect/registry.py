"""Which neighbours there are. Each is imported when it is asked for."""

from __future__ import annotations

import difflib
from importlib import import_module

from bident.connect.neighbour import Neighbour
from bident.errors import Code, ServeError

NEIGHBOURS = {
    "dify": "bident.connect.dify:Dify",
    "litellm": "bident.connect.litellm:LiteLlm",
    "langfuse": "bident.connect.langfuse:Langfuse",
    "prometheus": "bident.connect.prometheus:Prometheus",
    "grafana": "bident.connect.grafana:Grafana",
    "milvus": "bident.connect.milvus:Milvus",
    "openwebui": "bident.connect.openwebui:OpenWebUi",
    "continue": "bident.connect.continue_dev:Continue",
    "langchain": "bident.connect.langchain:LangChain",
}
"""Name -> where its class is."""


def neighbour(name: str) -> Neighbour:
    """The neighbour called ``name``. Raises NOT_FOUND with the nearest name."""
    place = NEIGHBOURS.get(name)
    if place is None:
        near = difflib.get_close_matches(name.lower(), NEIGHBOURS, 1, 0.5)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise ServeError(Code.NOT_FOUND, f"no neighbour is called '{name}'{hint} (there are {', '.join(NEIGHBOURS)})")
    module, _, kind = place.partition(":")
    found: Neighbour = getattr(import_module(module), kind)()
    return found
