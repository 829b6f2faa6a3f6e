"""Whether a model can do what it is asked for; if not, the error says so in Ollama's words before it is loaded."""

from __future__ import annotations

from bident.errors import ServeError, invalid_arg
from bident.text.answering.composing import has_images
from bident.text.model import TextModel
from bident.wire.text import TextRequest

_MOST_ANSWERS = 128


def check_answerable(model: TextModel, request: TextRequest) -> None:
    """Raise INVALID_ARG ``does not support ...`` for a request that the model's capabilities do not cover."""
    can = model.capabilities
    task = "chat" if request.messages is not None else "generate"
    if "completion" not in can:
        raise _lacks(request.model, task, f"it is for {' and '.join(sorted(can)) or 'nothing that is known'}")
    if not 1 <= request.count <= _MOST_ANSWERS:
        raise invalid_arg(f"n is {request.count}; 1 to {_MOST_ANSWERS} answers can be asked for")
    if request.tools and request.tool_choice.mode != "none" and not _shows_tools(model, request):
        raise invalid_arg(
            f"{model.name.short} does not support tools: its template has no place for them; use a model that was "
            "trained with tools, or create one from it with a TEMPLATE that shows .Tools"
        )
    if request.think and "thinking" not in can:
        raise _lacks(request.model, "thinking", "leave out think, or set it to false")
    if request.suffix and "insert" not in can and ".Suffix" not in (request.template or ""):
        raise _lacks(request.model, "insert", "it has no tokens for what goes before a suffix")
    if has_images(request) and "vision" not in can:
        raise _lacks(request.model, "vision", "it has no projector for images")
    if has_images(request) and (request.raw or request.suffix):
        raise invalid_arg("images need the model's template; leave out raw and suffix")


def check_embeds(model: TextModel, name: str) -> None:
    """Raise INVALID_ARG for a model that is not for embeddings."""
    if "embedding" not in model.capabilities:
        raise invalid_arg(
            f'"{name}" does not support embeddings: this model does not support embeddings, it is for '
            f"{' and '.join(sorted(model.capabilities))}; use a model made for them, such as minilm"
        )


def check_ranks(model: TextModel, name: str) -> None:
    """Raise INVALID_ARG for a model that cannot rerank."""
    if "rerank" not in model.capabilities:
        raise _lacks(name, "rerank", "use a model whose pooling is rank, such as a bge-reranker")


def _shows_tools(model: TextModel, request: TextRequest) -> bool:
    return ".Tools" in request.template if request.template else "tools" in model.capabilities


def _lacks(name: str, what: str, more: str) -> ServeError:
    return invalid_arg(f'"{name}" does not support {what}: {more}')
