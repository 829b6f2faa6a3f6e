"""What is sent to the server for a request: the path, the payload, and how its answer is to be read."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from bident.errors import Code, ServeError, invalid_arg
from bident.text.answering.asked import Server
from bident.text.answering.fitting import IMAGE_TOKENS, Fitted, check_size, fit, most_bytes, too_long
from bident.text.answering.messages import to_openai
from bident.text.answering.options import merged_options, sampling
from bident.text.answering.reading import Reading
from bident.text.answering.schema import check_schema, invalid_format, without_booleans
from bident.text.answering.thinking import begins_thinking, template_arguments
from bident.text.answering.tokens import apply_template, tokenize
from bident.text.answering.tools import call_schema, is_forced, offered
from bident.text.model import TextModel
from bident.text.template.conversation import PromptTemplate, Thinking
from bident.wire.text import Message, TextRequest

_log = logging.getLogger(__name__)

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
INFILL = "/infill"
_SPARE = 16
"""Tokens around a prompt and its suffix."""
_INDENTED = 4
"""How much longer than compact JSON a template may write the tools."""
_GUIDANCE = {"lenient": True}
"""For llguidance, which keeps completions to a schema: without it, a keyword it does not know frees the answer of
the whole schema, and nobody is told."""
_COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""As models write calls; small ones that may choose lose themselves in white space."""


@dataclass(frozen=True)
class Composed:
    """A request as the server gets it."""

    path: str
    payload: dict[str, Any]
    reading: Reading
    truncated_tokens: int = 0
    messages: Sequence[Message] = ()
    """What the prompt was made of, for the context that a later request goes on from."""
    before: Sequence[int] = ()
    """The tokens of an earlier context that came first."""


@dataclass(frozen=True, kw_only=True)
class Composer:
    """Turns one request into what its server takes. ``model`` is None where another server has it."""

    request: TextRequest
    server: Server
    model: TextModel | None
    options: Mapping[str, Any] = field(default_factory=dict)
    tools: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def of(cls, request: TextRequest, server: Server, model: TextModel | None) -> Composer:
        """Raises INVALID_ARG for tools, options or formats that are none, UNSUPPORTED for what the server cannot do."""
        if request.context and not server.is_native:
            raise ServeError(
                Code.UNSUPPORTED,
                f"{request.model} is served by another server, which cannot go on from a context of tokens; "
                "send the conversation as messages",
            )
        options = merged_options(model.parameters if model else {}, request.options)
        return cls(request=request, server=server, model=model, options=options, tools=offered(request))

    async def compose(self, *, own_parser: bool = False) -> Composed:
        """The request for the server. ``own_parser``: calls of tools are read here, not by llama.cpp."""
        request = self.request
        if request.raw or (request.prompt is not None and not isinstance(request.prompt, str)):
            return await self._raw()
        if request.suffix:
            return await self._fill_in()
        template = choose_template(self.model, request)
        fitted = await self._fitted(conversation(self.model, request), template)
        # A forced call goes as text: llama.cpp leaves tools out of the prompt where it is not to read calls itself.
        is_text = bool(request.context) or own_parser or (is_forced(request) and not has_images(request))
        if template is None and not (is_text and self.server.is_native):
            return self._chat(fitted)
        return await self._text(fitted, template)

    async def count(self) -> int:
        """How many tokens the whole prompt has. Raises INVALID_ARG where it would take long only to be counted."""
        template = choose_template(self.model, self.request)
        messages = conversation(self.model, self.request)
        check_size(most_bytes(messages), self.server.context_length)
        return await self._count(messages, template)

    async def rendered(self, messages: Sequence[Message], template: PromptTemplate | None) -> str:
        """The prompt for ``messages``, by the Modelfile's template or the model's own."""
        if template is None:
            return await apply_template(self.server, self._chat_arguments(messages))
        return template.conversation(messages, self.tools, Thinking.asked(self._think()))

    def _think(self) -> bool | str | None:
        """Whether to think. A call that is forced is written at once."""
        if is_forced(self.request) and self.model and "thinking" in self.model.capabilities:
            return False
        if self.request.think is None and self.model and "thinking" in self.model.capabilities:
            return True
        return self.request.think

    def _chat_arguments(self, messages: Sequence[Message]) -> dict[str, Any]:
        payload: dict[str, Any] = {"messages": to_openai(messages)}
        if self.tools:
            payload["tools"] = list(self.tools)
        if self.server.is_native and (arguments := template_arguments(self._think())):
            payload["chat_template_kwargs"] = dict(arguments)
        return payload

    def _chat(self, fitted: Fitted) -> Composed:
        payload = self._chat_arguments(fitted.messages) | self._sampling()
        forced = is_forced(self.request)
        if not self.server.is_native:
            return Composed(CHAT, payload | self._openai_only(), self._reading(schema=self._schema()))
        if self.tools:
            payload["tool_choice"] = "none" if forced else "auto"
            payload["parallel_tool_calls"] = self.request.parallel_tool_calls
        if self.request.logprobs:
            payload |= {"logprobs": True, "top_logprobs": max(1, self.request.top_logprobs)}
        payload["reasoning_format"] = "auto"
        reading = self._reading(tools=self.tools if forced else (), forced=forced, schema=self._schema())
        return Composed(CHAT, payload | self._constraint(), reading, fitted.truncated_tokens, fitted.messages)

    async def _text(self, fitted: Fitted, template: PromptTemplate | None) -> Composed:
        prompt = await self.rendered(fitted.messages, template)
        before = tuple(self.request.context)
        thinks = self.model is not None and "thinking" in self.model.capabilities
        reading = self._reading(
            tools=self.tools,
            forced=is_forced(self.request),
            thinking=begins_thinking(prompt) if thinks else None,
            schema=self._schema(),
        )
        asked: str | list[int] = prompt
        if before:
            asked = [*before, *await tokenize(self.server, prompt, add_special=False)]
        payload = self._completion(asked) | self._constraint()
        return Composed(TEXT, payload, reading, fitted.truncated_tokens, fitted.messages, before)

    async def _raw(self) -> Composed:
        """The prompt as it is. What is too long loses the part after its first ``num_keep`` tokens, as in Ollama."""
        prompt, cut = self.request.prompt or "", 0
        available = self.server.context_length
        if isinstance(prompt, str):
            check_size(len(prompt.encode()), available)
        asked: str | list[int] = prompt if isinstance(prompt, str) else list(prompt)
        if available and len(prompt.encode() if isinstance(prompt, str) else prompt) >= available:
            tokens = await tokenize(self.server, prompt) if isinstance(prompt, str) else list(prompt)
            if len(tokens) >= available:
                asked, cut = self._cut(tokens, available)
        return Composed(TEXT, self._completion(asked) | self._constraint(), self._reading(schema=self._schema()), cut)

    def _cut(self, tokens: list[int], available: int) -> tuple[list[int], int]:
        if not self.request.truncate:
            raise too_long(len(tokens), available)
        keep = max(0, min(self.options["num_keep"], available // 2))
        rest = available - max(1, available // 8) - keep
        return tokens[:keep] + tokens[-rest:], len(tokens) - keep - rest

    async def _fill_in(self) -> Composed:
        """What goes between a prompt and its suffix: by the Modelfile's template, or the model's own tokens for it."""
        prompt, suffix = str(self.request.prompt or ""), self.request.suffix
        available = self.server.context_length
        check_size(len((prompt + suffix).encode()), available)
        if available and len((prompt + suffix).encode()) + _SPARE >= available:
            length = len(await tokenize(self.server, prompt)) + len(await tokenize(self.server, suffix)) + _SPARE
            if length >= available:
                raise too_long(length, available, "prompt with its suffix")
        text = self.request.template or (self.model.template if self.model else None)
        template = PromptTemplate.read(text) if text else None
        if not self.server.is_native:
            return Composed(TEXT, self._completion(prompt) | {"suffix": suffix}, self._reading())
        reading = self._reading(schema=self._schema())
        if template is not None and template.shows("Suffix"):
            payload = self._completion(template.fill_in(prompt, suffix)) | self._constraint()
            return Composed(TEXT, payload, reading)
        payload = {"input_prefix": prompt, "input_suffix": suffix, "prompt": "", **self._sampling()}
        if self.request.logprobs:
            payload["n_probs"] = max(1, self.request.top_logprobs)
        return Composed(INFILL, payload | self._constraint(), reading)

    async def _fitted(self, messages: Sequence[Message], template: PromptTemplate | None) -> Fitted:
        available = self.server.context_length - len(self.request.context)
        if not self.server.context_length:
            return Fitted(messages)
        template_text = self.request.template or ""
        if self.model is not None:
            template_text = template_text or self.model.template or self.model.facts.chat_template or ""
        more = len(template_text.encode()) + _INDENTED * len(orjson.dumps(list(self.tools)))
        size = most_bytes(messages) + more
        if size < available:
            return Fitted(messages)
        check_size(size, available)
        if available < 2:
            raise too_long(len(self.request.context), self.server.context_length, "context")
        within = replace(self.server, context_length=available)
        return await fit(messages, lambda some: self._count(some, template), within, truncate=self.request.truncate)

    async def _count(self, messages: Sequence[Message], template: PromptTemplate | None) -> int:
        prompt = await self.rendered(messages, template)
        images = sum(len(message.images) for message in messages)
        return len(await tokenize(self.server, prompt)) + images * IMAGE_TOKENS

    def _completion(self, prompt: str | list[int]) -> dict[str, Any]:
        payload: dict[str, Any] = {"prompt": prompt, **self._sampling()}
        if self.request.logprobs:
            payload["logprobs"] = max(1, self.request.top_logprobs)
        return payload

    def _sampling(self) -> dict[str, Any]:
        payload = sampling(self.request, self.options, self.server)
        payload["stream_options"] = {"include_usage": True}
        if not self.server.is_native:
            payload["model"] = self.server.model
            payload |= {"n": self.request.count} if self.request.count > 1 else {}
        return payload

    def _constraint(self) -> dict[str, Any]:
        """What the answer is kept to."""
        if is_forced(self.request):
            schema = without_booleans(call_schema(self.tools, self.request.tool_choice.name))
            return {"json_schema": {**schema, "x-guidance": {**_GUIDANCE, **_COMPACT}}}
        asked = self._schema()
        if asked is None:
            return {}
        if not self.server.is_native:
            return {"response_format": _response_format(asked)}
        schema = {"type": "object"} if isinstance(asked, bool) else without_booleans(asked)
        return {"json_schema": {**schema, "x-guidance": _GUIDANCE}}

    def _schema(self) -> Mapping[str, Any] | bool | None:
        """The schema of ``format``; True for any JSON."""
        asked = self.request.format
        if not asked or is_forced(self.request):
            return None
        if isinstance(asked, str):
            if asked != "json":
                raise invalid_format(orjson.dumps(asked[:80]).decode())
            return True
        check_schema(asked)
        try:
            orjson.dumps(asked)
        except orjson.JSONEncodeError:
            raise invalid_format("the schema is nested too deeply") from None
        return asked

    def _openai_only(self) -> dict[str, Any]:
        """What OpenAI's own API has names for."""
        request, payload = self.request, dict[str, Any]()
        if not is_forced(request):
            payload |= self._constraint()
        if self.tools:
            name = request.tool_choice.name
            payload["tool_choice"] = (
                {"type": "function", "function": {"name": name}} if name else request.tool_choice.mode
            )
            payload["parallel_tool_calls"] = request.parallel_tool_calls
        if request.logprobs:
            payload |= {"logprobs": True, "top_logprobs": request.top_logprobs}
        if request.think is not None and request.think is not True:
            payload["reasoning_effort"] = request.think or "none"
        return payload

    def _reading(self, **more: Any) -> Reading:
        silent = self.options["num_predict"] == 0
        more = {} if silent else {"stops": bool(self.options["stop"]), **more}
        return Reading(top=self.request.top_logprobs, silent=silent, **more)


def _response_format(schema: Mapping[str, Any] | bool) -> dict[str, Any]:
    """OpenAI's way to say what an answer is kept to."""
    if isinstance(schema, bool):
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def has_images(request: TextRequest) -> bool:
    """Whether there is a picture anywhere in the request."""
    return bool(request.images) or any(message.images for message in request.messages or ())


def conversation(model: TextModel | None, request: TextRequest) -> list[Message]:
    """The messages that the model sees: the request's, after those that the Modelfile has for every conversation."""
    system, first = (model.system, list(model.messages)) if model else ("", [])
    if request.messages is not None:
        messages = [*first, *request.messages]
        has_own = bool(request.messages) and request.messages[0].role == "system"
        return [Message("system", system), *messages] if system and not has_own else messages
    prompt = Message("user", str(request.prompt or ""), images=tuple(request.images))
    if request.context:
        # What the model was told before is in the context already.
        return [Message("system", request.system), prompt] if request.system else [prompt]
    said = system if request.system is None else request.system
    return [*([Message("system", said)] if said else []), *first, prompt]


def choose_template(model: TextModel | None, request: TextRequest) -> PromptTemplate | None:
    """The TEMPLATE to use: the request's, the Modelfile's, or None for the chat template in the weights.

    The weights' own is preferred where it can show the model what the Modelfile's cannot, as in Ollama, and
    for pictures. Raises INVALID_ARG for a template that cannot be read, unless the weights have another.
    """
    if request.template:
        if has_images(request):
            raise invalid_arg("a template of the request's own cannot show images; leave it out")
        return PromptTemplate.read(request.template)
    if model is None or not model.template:
        return None
    own = model.facts.chat_template or ""
    if has_images(request):
        return None
    try:
        template = PromptTemplate.read(model.template)
    except ServeError as error:
        if not own:
            raise
        _log.warning("%s: its TEMPLATE is not used, but the one in its weights: %s", model.name.short, error.message)
        return None
    lacks_tools = bool(request.tools) and not template.shows("Tools") and "tools" in own
    return None if lacks_tools else template


async def context_after(composer: Composer, composed: Composed, answer: str) -> list[int]:
    """The tokens that prompt and answer were, for ``/api/generate`` to go on from."""
    template = choose_template(composer.model, composer.request)
    prompt = await composer.rendered(composed.messages, template)
    first = not composed.before
    return [*composed.before, *await tokenize(composer.server, prompt + answer, add_special=first)]
