"""The text models in Dify's settings, model by model. Its plugins ask for them directly, past the SSRF proxy."""

from __future__ import annotations

from bident.connect.site import TextModel

_KINDS = (("completion", "LLM"), ("embedding", "Text Embedding"), ("rerank", "Rerank"))
"""Ollama's capabilities, and Dify's types of models."""
_OLLAMA_TYPES = frozenset(("LLM", "Text Embedding"))
_CONTEXT = 4096
"""Dify's own default, for models whose file does not say."""


def providers(models: list[TextModel], url: str) -> str:
    """What to fill in for each of ``models`` on the text server at ``url``, in either of the two plugins."""
    parts = [_HEAD]
    for model in models:
        for capability, kind in _KINDS:
            if capability in model.capabilities:
                parts.append(_ollama(model, kind, url) if kind in _OLLAMA_TYPES else "")
                parts.append(_compatible(model, kind, url))
    return "\n".join(part for part in parts if part)


def _ollama(model: TextModel, kind: str, url: str) -> str:
    rows = {"Model Type": kind, "Model Name": model.name, "Base URL": url}
    rows["Model context size"] = _context(model)
    if kind == "LLM":
        rows["Completion mode"] = "Chat"
        rows["Upper bound for max tokens"] = _context(model)
        rows["Vision support"] = _yes(model, "vision")
        rows["Function call support"] = _yes(model, "tools")
    return _block(f"Ollama: {model.name}", rows)


def _compatible(model: TextModel, kind: str, url: str) -> str:
    rows = {"Model Type": kind, "Model Name": model.name, "API endpoint URL": f"{url}/v1"}
    rows["API Key"] = "the server's, where it wants one"
    rows["Model context size"] = _context(model)
    if kind == "LLM":
        rows["Completion mode"] = "Chat"
        rows["Upper bound for max tokens"] = _context(model)
        rows["Function calling"] = "Tool Call" if "tools" in model.capabilities else "Not Support"
        rows["Vision Support"] = "Support" if "vision" in model.capabilities else "Not Support"
    return _block(f"OpenAI-API-compatible: {model.name}", rows)


def _context(model: TextModel) -> str:
    return str(model.context_length or _CONTEXT)


def _yes(model: TextModel, capability: str) -> str:
    return "Yes" if capability in model.capabilities else "No"


def _block(title: str, rows: dict[str, str]) -> str:
    width = max(map(len, rows)) + 2
    return "\n".join([f"[{title}]", *(f"  {f'{name}:':<{width}}{value}" for name, value in rows.items()), ""])


_HEAD = """\
In Dify: Settings, Model Provider. Install the plugin "Ollama" or "OpenAI-API-compatible" (one of the two is enough),
choose "Add Model" and fill in what follows. The plugins run in the container plugin_daemon, which asks the text server
directly: the SSRF proxy and its variables have no part in it.
"""
