"""OpenAI's request bodies as requests to the text engine (its API reference: Chat, Completions, Embeddings).

Beside OpenAI's fields the sampling options of llama.cpp and Ollama are taken under their own names
(``top_k``, ``num_ctx``, all of ``options``), which OpenAI's clients can send as extra fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from bident.errors import invalid_arg
from bident.text.doors.fields import Fields
from bident.text.doors.images import decode_image_url
from bident.text.doors.ollama_requests import checked_tool, options, required_model, think
from bident.text.durations import parse_keep_alive
from bident.wire.shown import shown
from bident.wire.text import EmbedRequest, Message, RerankRequest, TextRequest, ToolCall, ToolChoice

_MOST_TOP_LOGPROBS = 20
_MOST_COMPLETION_LOGPROBS = 5
_MOST_ANSWERS = 128
_MOST_BIAS = 100
_EXTRA_NUMBERS = ("min_p", "typical_p", "repeat_penalty")
_EXTRA_COUNTS = ("top_k", "num_ctx", "num_keep", "repeat_last_n")
_EFFORTS: dict[str, bool | str] = {
    "none": False,
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "max",
    "max": "max",
}
"""OpenAI's efforts as ``think`` has them."""
_HARMLESS = (
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "verbosity",
    "prediction",
)


def chat_request(fields: Fields) -> TextRequest:
    """The request in the body of ``/v1/chat/completions``. Raises INVALID_ARG."""
    model = required_model(fields)
    messages = [message(each) for each in fields.objects("messages")]
    if not messages:
        raise invalid_arg("[] is too short - 'messages': at least one message is required")
    fields.refuse("functions", "describe them in 'tools'")
    fields.refuse("function_call", "say it in 'tool_choice'")
    fields.refuse("audio", "this server answers in text")
    fields.refuse("web_search_options", "this server does not search the web")
    if set(fields.texts("modalities")) - {"text"}:
        raise fields.wrong("modalities", '["text"]')
    top_logprobs = fields.whole("top_logprobs", 0, 0, _MOST_TOP_LOGPROBS)
    logprobs = fields.flag("logprobs")
    if top_logprobs and not logprobs:
        raise invalid_arg("top_logprobs needs logprobs to be true")
    return TextRequest(
        model=model,
        messages=messages,
        tools=[checked_tool(each) for each in fields.objects("tools")],
        tool_choice=_tool_choice(fields),
        parallel_tool_calls=fields.flag("parallel_tool_calls", True),
        format=answer_format(fields.object("response_format"), nested=True),
        think=_effort(fields),
        logprobs=logprobs,
        top_logprobs=top_logprobs,
        **_shared(fields),
    )


def completion_request(fields: Fields) -> TextRequest:
    """The request in the body of ``/v1/completions``. Raises INVALID_ARG."""
    model = required_model(fields)
    prompt = _prompt(fields)
    logprobs = fields.whole("logprobs", -1, 0, _MOST_COMPLETION_LOGPROBS)
    count = fields.whole("n", 1, 1, _MOST_ANSWERS)
    if fields.whole("best_of", count, 1, _MOST_ANSWERS) != count:
        raise invalid_arg("best_of is not supported: this server gives all the answers it makes, as many as 'n'")
    return TextRequest(
        model=model,
        prompt=prompt,
        raw=not isinstance(prompt, str),
        suffix=fields.text("suffix"),
        logprobs=logprobs >= 0,
        top_logprobs=max(logprobs, 0),
        **_shared(fields),
    )


def embed_request(fields: Fields) -> EmbedRequest:
    """The request in the body of ``/v1/embeddings``: a text, texts, tokens, or lists of tokens. Raises INVALID_ARG."""
    model = required_model(fields)
    if fields.raw("input") is None and fields.raw("prompt") is not None:
        raise invalid_arg("/v1/embeddings takes 'input', not 'prompt'")
    inputs = _inputs(fields)
    fields.ignore("user")
    return EmbedRequest(
        model=model,
        inputs=inputs,
        truncate=fields.flag("truncate", True),
        dimensions=fields.whole("dimensions", 0, 1),
        options=options(fields),
        keep_alive=parse_keep_alive(fields.raw("keep_alive")),
    )


def rerank_request(fields: Fields) -> RerankRequest:
    """The request in the body of ``/v1/rerank`` (Jina's and Cohere's). Raises INVALID_ARG."""
    model = required_model(fields)
    query = fields.text("query")
    if not query:
        raise invalid_arg("query is required")
    documents = []
    for index, given in enumerate(fields.elements("documents", "a list of strings, or of objects with 'text'")):
        text = given.get("text") if isinstance(given, dict) else given
        if not isinstance(text, str):
            raise invalid_arg(f"documents[{index}] must be a string, or an object with 'text', not {shown(given)}")
        documents.append(text)
    if not documents:
        raise invalid_arg("documents is required: a list of strings, or of objects with 'text'")
    return RerankRequest(
        model=model,
        query=query,
        documents=documents,
        top=fields.whole("top_n", 0, 1),
        keep_alive=parse_keep_alive(fields.raw("keep_alive")),
    )


def _shared(fields: Fields) -> dict[str, Any]:
    """What chats and completions have in common."""
    found = sampling(fields)
    limit = "max_completion_tokens" if fields.raw("max_completion_tokens") is not None else "max_tokens"
    fields.ignore("max_tokens", *_HARMLESS)
    if fields.raw(limit) is not None:
        found["num_predict"] = _limit(fields, limit)
    return {
        "options": found,
        "logit_bias": _logit_bias(fields),
        "count": fields.whole("n", 1, 1, _MOST_ANSWERS),
        "truncate": fields.flag("truncate", True),
        "shift": fields.flag("shift", True),
        "keep_alive": parse_keep_alive(fields.raw("keep_alive")),
    }


def sampling(fields: Fields) -> dict[str, Any]:
    """Sampling options by Ollama's names, with OpenAI's defaults, which its clients count on."""
    found: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0, **options(fields)}
    ranges = {"temperature": (0, 2), "top_p": (0, 1), "frequency_penalty": (-2, 2), "presence_penalty": (-2, 2)}
    for name, (lowest, highest) in ranges.items():
        if (number := fields.number(name, lowest, highest)) is not None:
            found[name] = number
    for name in _EXTRA_NUMBERS:
        if (number := fields.number(name, 0, 1000)) is not None:
            found[name] = number
    for name in _EXTRA_COUNTS:
        if fields.raw(name) is not None:
            found[name] = fields.whole(name, 0, -1)
    if fields.raw("seed") is not None:
        found["seed"] = fields.whole("seed", 0, -(2**63), 2**63 - 1)
    if stop := fields.texts("stop"):
        found["stop"] = stop
    return found


def _limit(fields: Fields, name: str) -> int:
    limit = fields.whole(name, -1, -1)
    if limit == 0:
        raise fields.wrong(name, "at least 1")
    return limit


def message(fields: Fields) -> Message:
    """One message of a conversation. Raises INVALID_ARG."""
    role = fields.choice("role", ("system", "developer", "user", "assistant", "tool"), "")
    content, images = _content(fields)
    fields.ignore("refusal", "annotations", "audio")
    return Message(
        role="system" if role == "developer" else role,
        content=content,
        thinking=fields.text("reasoning") or fields.text("reasoning_content"),
        images=images,
        tool_calls=[tool_call(each) for each in fields.objects("tool_calls")],
        tool_name=fields.text("name") if role == "tool" else "",
        tool_call_id=fields.text("tool_call_id"),
    )


def _content(fields: Fields) -> tuple[str, list[bytes]]:
    """Content is a text, or a list of parts: texts and pictures."""
    value = fields.raw("content")
    if value is None or isinstance(value, str):
        return value or "", []
    if not isinstance(value, list):
        raise fields.wrong("content", "a string or a list of parts")
    texts, images = [], []
    for part in fields.objects("content"):
        kind = part.text("type")
        if kind in ("text", "input_text", "output_text"):
            texts.append(part.text("text"))
        elif kind == "refusal":
            texts.append(part.text("refusal"))
        elif kind in ("image_url", "input_image"):
            images.append(_image(part))
        else:
            raise part.wrong("type", "text or image_url; this server takes no other parts")
    return "\n".join(texts), images


def _image(part: Fields) -> bytes:
    value = part.raw("image_url")
    if isinstance(value, dict):
        value = value.get("url")
    if not isinstance(value, str):
        raise part.wrong("image_url", "an object with 'url', or a URL")
    return decode_image_url(value, part.path("image_url"))


def tool_call(fields: Fields) -> ToolCall:
    """A call that the model made earlier; its arguments are JSON in a text. Raises INVALID_ARG."""
    function = fields.object("function")
    if function is None:
        raise invalid_arg(f"{fields.path('function')} is required")
    return ToolCall(fields.text("id"), function.text("name"), arguments(function, "arguments"))


def arguments(fields: Fields, name: str) -> Mapping[str, Any]:
    """Arguments of a call: an object, as JSON in a text. Raises INVALID_ARG."""
    try:
        value = orjson.loads(fields.text(name) or "{}")
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise fields.wrong(name, "a JSON object written as a string")
    return value


def _tool_choice(fields: Fields) -> ToolChoice:
    value = fields.raw("tool_choice")
    if value is None:
        return ToolChoice()
    if value in ("auto", "none", "required"):
        return ToolChoice(value)
    function = value.get("function") if isinstance(value, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or not name:
        raise fields.wrong(
            "tool_choice", '"auto", "none", "required" or {"type": "function", "function": {"name": ...}}'
        )
    return ToolChoice("required", name)


def answer_format(wanted: Fields | None, *, nested: bool) -> str | Mapping[str, Any] | None:
    """``json``, a JSON schema, or None for text. Where it is ``nested``, the schema is a field of ``json_schema``."""
    if wanted is None:
        return None
    kind = wanted.choice("type", ("text", "json_object", "json_schema"), "text")
    if kind != "json_schema":
        return "json" if kind == "json_object" else None
    holder = wanted
    if nested:
        holder = wanted.object("json_schema") or Fields({}, wanted.path("json_schema"))
    schema = holder.object("schema")
    if schema is None:
        raise invalid_arg(f"{holder.path('schema')} is required")
    return schema.values


def _effort(fields: Fields) -> bool | str | None:
    """How much the model thinks first: ``reasoning_effort``, ``reasoning.effort``, or Ollama's ``think``."""
    reasoning = fields.object("reasoning")
    holder, name = (reasoning, "effort") if reasoning else (fields, "reasoning_effort")
    return effort(holder, name) if holder.raw(name) is not None else think(fields)


def effort(fields: Fields, name: str) -> bool | str:
    """OpenAI's efforts as ``think`` has them."""
    value = fields.choice(name, tuple(_EFFORTS), "none")
    return _EFFORTS[value]


def _logit_bias(fields: Fields) -> dict[int, float]:
    found = fields.object("logit_bias") or Fields({})
    biases = {}
    for token in found.values:
        if not token.isascii() or not token.isdigit() or len(token) > 10:
            raise invalid_arg(f"logit_bias: {shown(token)} is no token; its keys are the numbers of tokens")
        biases[int(token)] = found.number(token, -_MOST_BIAS, _MOST_BIAS) or 0.0
    return biases


def _prompt(fields: Fields) -> str | Sequence[int]:
    value = fields.raw("prompt")
    while isinstance(value, list) and len(value) == 1 and not isinstance(value[0], int):
        value = value[0]
    if isinstance(value, str) and value:
        return value
    if _is_tokens(value):
        tokens: Sequence[int] = value
        return tokens
    if isinstance(value, list) and len(value) > 1:
        raise invalid_arg("prompt must be one prompt; send a request for each")
    raise fields.wrong("prompt", "a string that is not empty, or a list of tokens")


def _inputs(fields: Fields) -> Sequence[str | Sequence[int]]:
    value = fields.raw("input")
    if isinstance(value, str) or (value and _is_tokens(value)):
        return [value]
    if isinstance(value, list) and all(isinstance(each, str) or _is_tokens(each) for each in value):
        return value
    raise fields.wrong("input", "a string, a list of strings, a list of tokens or a list of lists of tokens")


def _is_tokens(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(each) is int for each in value)
