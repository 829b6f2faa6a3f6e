"""``config.yaml``, as LiteLLM's proxy takes it ("All settings" in its documentation)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from bident.client.credentials import API_KEY_VARIABLE
from bident.connect.litellm.choices import MASTER_KEY, Choices
from bident.connect.site import Address, Site, TextModel
from bident.yaml import to_yaml

TENSOR_PATH = "/tensor"
"""Where the tensor server is found below LiteLLM's own address."""
_ENVIRONMENT = "os.environ/"
_ANY_KEY = "none"

_ABOUT = "The models of a Bident, for LiteLLM's proxy. Made by 'bident connect litellm'; it holds no keys."
_ABOUT_SETTINGS = "What a client sends and a model does not take (encoding_format, for one) is left out, not refused."
_ABOUT_LANGFUSE = (
    "Langfuse is told by LANGFUSE_PUBLIC_KEY, LANGFUSE_SECRET_KEY and LANGFUSE_OTEL_HOST of the environment."
)
_ABOUT_ROUTER = "Every model is at one place: to stay away from it after an error would turn everybody away."
_ABOUT_TENSORS = (
    f"Tensor models below {TENSOR_PATH}: metadata and inference, no model control. Requests are JSON (LiteLLM drops "
    "binary ones),\nanswers may be binary."
)


def document(site: Site, choices: Choices) -> str:
    """The whole file, with comments."""
    return "\n".join(_comment(about) + to_yaml(section) for about, section in _sections(site, choices))


def _sections(site: Site, choices: Choices) -> Iterator[tuple[str, dict[str, Any]]]:
    yield _ABOUT, {"model_list": list(_models(site.text, choices)) if site.text else []}
    if choices.langfuse == "false":
        yield _ABOUT_SETTINGS, {"litellm_settings": {"drop_params": True}}
    else:
        settings = {
            "drop_params": True,
            "callbacks": ["langfuse_otel"],
            "turn_off_message_logging": choices.langfuse != "text",
        }
        yield f"{_ABOUT_SETTINGS}\n{_ABOUT_LANGFUSE}", {"litellm_settings": settings}
    yield _ABOUT_ROUTER, {"router_settings": {"disable_cooldowns": True}}
    general: dict[str, Any] = {"master_key": _ENVIRONMENT + MASTER_KEY}
    passed = list(_passed(site.tensor, choices)) if site.tensor else []
    yield (
        (_ABOUT_TENSORS, {"general_settings": {**general, "pass_through_endpoints": passed}})
        if passed
        else ("What clients must show.", {"general_settings": general})
    )


def _models(text: Address, choices: Choices) -> Iterator[dict[str, Any]]:
    for model in choices.chats:
        parameters = _parameters(text, choices, choices.route, model)
        abilities = {
            "mode": "chat",
            "supports_function_calling": "tools" in model.capabilities,
            "supports_vision": "vision" in model.capabilities,
        }
        yield {"model_name": model.short, "litellm_params": parameters, "model_info": abilities}
    for model in choices.embedders:
        # Not by "ollama": LiteLLM shows no key there.
        parameters = _parameters(text, choices, "openai", model)
        yield {"model_name": model.short, "litellm_params": parameters, "model_info": {"mode": "embedding"}}


def _parameters(text: Address, choices: Choices, route: str, model: TextModel) -> dict[str, Any]:
    """By which API a model is asked, and where."""
    is_openai = route == "openai"
    parameters = {"model": f"{route}/{model.name}", "api_base": f"{text.theirs}/v1" if is_openai else text.theirs}
    if choices.needs_key:
        parameters["api_key"] = _ENVIRONMENT + API_KEY_VARIABLE
    elif is_openai:
        parameters["api_key"] = _ANY_KEY  # OpenAI's client does not start without one
    return parameters


def _passed(tensor: Address, choices: Choices) -> Iterator[dict[str, Any]]:
    """Only paths on which models are asked: whoever has a key of LiteLLM must not load models."""
    if not choices.tensors:
        return
    models = [f"/v2/models/{model.name}" for model in choices.tensors] if choices.only_these else ["/v2/models"]
    for path in ("/v2/health", *models):
        endpoint = {
            "path": TENSOR_PATH + path,
            "target": tensor.theirs + quote(path),
            "include_subpath": True,
            "auth": True,
        }
        if choices.needs_key:
            endpoint["headers"] = {"Authorization": f"Bearer {_ENVIRONMENT}{API_KEY_VARIABLE}"}
        yield endpoint


def _comment(about: str) -> str:
    return "".join(f"# {line}\n" for line in about.splitlines())
