"""What of a site LiteLLM is told about, and how."""

from __future__ import annotations

from dataclasses import dataclass

from bident.connect.neighbour import Wanted
from bident.connect.site import Site, TensorModel, TextModel
from bident.errors import Code, ServeError, invalid_arg
from bident.settings.addresses import is_web_address

MASTER_KEY = "LITELLM_MASTER_KEY"
"""Environment variable with the key that clients show LiteLLM."""
DEFAULT_PORT = 4000
_DEFAULT_PROXY = f"http://127.0.0.1:{DEFAULT_PORT}"


@dataclass(frozen=True)
class Choices:
    """A person's choices, checked, and the models that they leave."""

    chats: tuple[TextModel, ...]
    embedders: tuple[TextModel, ...]
    tensors: tuple[TensorModel, ...]
    only_these: bool
    """Whether ``tensors`` are all that may be asked through LiteLLM; otherwise later ones may be, too."""
    route: str
    """``ollama_chat`` or ``openai``: the API by which LiteLLM asks for chats."""
    langfuse: str
    """``false``; ``true`` for traces without texts; ``text`` for traces with them."""
    proxy: str
    """Where LiteLLM listens, ``http://host:port``."""
    needs_key: bool
    """Whether our servers want an API key, which they do where this command has one."""

    @classmethod
    def of(cls, site: Site, wanted: Wanted) -> Choices:
        """Raises INVALID_ARG for a choice that there is not, NOT_FOUND where no model is left."""
        texts = [model for model in site.text_models if wanted.includes(model.name)]
        tensors = [model for model in site.models if wanted.includes(model.name)]
        made = cls(
            chats=tuple(model for model in texts if "completion" in model.capabilities),
            embedders=tuple(model for model in texts if _only_embeds(model)),
            tensors=tuple(tensors),
            only_these=bool(wanted.models),
            route=wanted.one_of("route", "ollama_chat", "openai"),
            langfuse=wanted.one_of("langfuse", "false", "true", "text"),
            proxy=_address(wanted.option("proxy", _DEFAULT_PROXY)),
            needs_key=site.wants_key,
        )
        if not (made.chats or made.embedders or made.tensors):
            raise ServeError(
                Code.NOT_FOUND,
                "there is no model to connect LiteLLM with; 'bident pull smollm2' fetches one for chats, "
                "'bident zoo build iris_sklearn' builds one for tensors",
            )
        return made


def _only_embeds(model: TextModel) -> bool:
    return "embedding" in model.capabilities and "completion" not in model.capabilities


def _address(proxy: str) -> str:
    if not is_web_address(proxy) or any(sign.isspace() for sign in proxy):
        raise invalid_arg(f"--set proxy={proxy}: it is an address such as {_DEFAULT_PROXY}")
    return proxy.rstrip("/")
