"""What a model can be asked for, from its weights and its templates (Ollama's ``capabilities``)."""

from __future__ import annotations

import re

from bident.text.gguf import GgufFacts

_GO_TOOLS = re.compile(r"\.Tools\b|\.ToolCalls\b")
_GO_SUFFIX = re.compile(r"\.Suffix\b")
_GO_THINKING = re.compile(r"\.Think(?:ing|Level)?\b|\.IsThinkSet\b")
_JINJA_CODE = re.compile(r"\{[{%](.*?)[%}]\}", re.DOTALL)
_JINJA_TOOLS = re.compile(r"\btools\b")
_JINJA_THINKING = re.compile(r"\b(?:enable_thinking|reasoning_content|reasoning_effort|thinking)\b|</think>")


def capabilities_of(facts: GgufFacts, template: str | None, has_projector: bool) -> frozenset[str]:
    """``template`` is the Modelfile's, if it has one; the weights' own counts too, for tools and thinking."""
    if facts.pooling:
        return frozenset({"rerank" if facts.pooling == "rank" else "embedding"})
    found = {"completion"}
    go, jinja = template or "", facts.chat_template or ""
    code = " ".join(_JINJA_CODE.findall(jinja))
    if _GO_TOOLS.search(go) or _JINJA_TOOLS.search(code):
        found.add("tools")
    if _GO_THINKING.search(go) or _JINJA_THINKING.search(code):
        found.add("thinking")
    if _GO_SUFFIX.search(go) or facts.infill:
        found.add("insert")
    if has_projector or facts.vision:
        found.add("vision")
    return frozenset(found)


def parameter_size(count: int) -> str:
    """A number of parameters as Ollama prints it: 134515008 is ``134.52M``."""
    for unit, letter, digits in ((1e9, "B", 1), (1e6, "M", 2), (1e3, "K", 0)):
        if count >= unit:
            number = count / unit
            return f"{number:.0f}{letter}" if number.is_integer() else f"{number:.{digits}f}{letter}"
    return str(count)
