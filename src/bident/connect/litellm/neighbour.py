"""LiteLLM's proxy as a neighbour."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import ClassVar
from urllib.parse import urlsplit

from bident.client.credentials import API_KEY_VARIABLE
from bident.connect.litellm.choices import DEFAULT_PORT, MASTER_KEY, Choices
from bident.connect.litellm.configuration import document
from bident.connect.neighbour import File, Hop, Neighbour, Wanted
from bident.connect.site import Site

_RELEASE = "1.106.12"
"""The one that the tests run. Pinned: two others carried malicious code (BerriAI/litellm issue 24518)."""
_FILE = "config.yaml"


class LiteLlm(Neighbour):
    """One OpenAI address with keys, budgets and traces before the text models; tensor models pass through."""

    name: ClassVar[str] = "litellm"
    summary: ClassVar[str] = "LiteLLM's proxy: the text models at one OpenAI address, the tensor models below /tensor"
    options: ClassVar[Mapping[str, str]] = {
        "proxy": f"where LiteLLM listens; http://127.0.0.1:{DEFAULT_PORT} without it",
        "route": "the API by which LiteLLM asks for chats: ollama_chat (without it) or openai",
        "langfuse": "traces to Langfuse: true without texts, text with them, false (without it) none",
    }

    def files(self, site: Site, wanted: Wanted) -> list[File]:
        text = document(site, Choices.of(site, wanted))
        return [File(_FILE, text, "LiteLLM's configuration; start its proxy with --config")]

    def steps(self, site: Site, wanted: Wanted) -> list[str]:
        choices = Choices.of(site, wanted)
        more = " opentelemetry-sdk opentelemetry-exporter-otlp-proto-http" if choices.langfuse != "false" else ""
        packages = f"'litellm[proxy]=={_RELEASE}'{more}"
        steps = [
            f"python3 -m venv litellm && litellm/bin/pip install {packages}",
            f"export {MASTER_KEY}=sk-...    # of your choice; without it LiteLLM asks nobody for a key",
        ]
        if choices.needs_key:
            steps.append(f"export {API_KEY_VARIABLE}=...    # what the servers here want to be shown")
        if choices.langfuse != "false":
            steps.append(
                "export LANGFUSE_PUBLIC_KEY=pk-... LANGFUSE_SECRET_KEY=sk-... LANGFUSE_OTEL_HOST=http://127.0.0.1:3000"
            )
        return [*steps, _start(choices), f"bident connect litellm --check --set proxy={choices.proxy}"]

    def check(self, site: Site, wanted: Wanted) -> Iterator[Hop]:
        from bident.connect.litellm.proxy import Proxy
        from bident.connect.litellm.way import Way

        choices = Choices.of(site, wanted)
        with Proxy(choices.proxy, os.environ.get(MASTER_KEY, "")) as proxy:
            yield from Way(site, choices, proxy, _start(choices)).hops()


def _start(choices: Choices) -> str:
    """The command that starts the proxy where ``--check`` looks for it."""
    port = urlsplit(choices.proxy).port or DEFAULT_PORT
    # Its prices come with it: without the variable it fetches newer ones from the network first.
    return f"LITELLM_LOCAL_MODEL_COST_MAP=True litellm/bin/litellm --config {_FILE} --host 127.0.0.1 --port {port}"
