"""What a span says of an answer: OpenTelemetry's ``gen_ai.*`` attributes, and those of Langfuse.

After OpenTelemetry's semantic conventions for generative AI. Text (prompts, answers, stop sequences) is said only
where it is wanted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from bident.observe.langfuse import METADATA, OBSERVATION
from bident.wire.text import Embeddings, EmbedRequest, Message, TextEnd, TextEvent, TextPiece, TextRequest, Usage

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

_PARAMETERS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "num_predict": "max_tokens",
    "seed": "seed",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
}
"""Ollama's options, and the attributes that say the same."""
_LOADING = ("load", "unload")
_LONGEST_TEXT = 20_000
_MOST_TEXTS = 100
"""So many characters of so many messages or texts: a span is a note, no archive."""
_LONGEST_NAME = 350
_MS = 1_000_000


class Notes:
    """One answer. ``counts``: its tokens are the span's usage, and not only known of."""

    def __init__(self, operation: str, model: str, *, with_text: bool, counts: bool) -> None:
        model = model[:_LONGEST_NAME]
        self.title = f"{operation} {model}"
        self.is_complete = False
        """All of the answer has come: whoever leaves now has it."""
        self.is_for_nothing = False
        """Nothing was asked: a model was loaded or unloaded."""
        self._with_text = with_text
        self._counts = counts
        self._usage = Usage()
        self._reasons: list[str] = []
        self._answers: dict[int, _Answer] = {}
        self._first_at: datetime | None = None
        kind = "embedding" if operation == "embeddings" else "generation"
        self._said: dict[str, AttributeValue] = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "bident",
            "gen_ai.request.model": model,
            "gen_ai.response.model": model,
            f"{OBSERVATION}.type": kind if counts else "span",
        }

    def asked(self, request: TextRequest) -> None:
        """What the model is asked, and how."""
        said = self._said
        for option, attribute in _PARAMETERS.items():
            value = request.options.get(option)
            if isinstance(value, (int, float)):
                said[f"gen_ai.request.{attribute}"] = value
        if request.count > 1:
            said["gen_ai.request.choice.count"] = request.count
        if request.format is not None:
            said["gen_ai.output.type"] = "json"
        if not self._with_text:
            return
        if stop := request.options.get("stop"):
            said["gen_ai.request.stop_sequences"] = [stop] if isinstance(stop, str) else [str(each) for each in stop]
        if request.system:
            said["gen_ai.system_instructions"] = _json([_text_part(request.system)])
        said["gen_ai.input.messages"] = _json(_input_messages(request))

    def see(self, event: TextEvent) -> None:
        """A piece or an end of the answer has come."""
        if isinstance(event, TextPiece):
            if self._first_at is None:
                self._first_at = datetime.now(timezone.utc)
            if self._with_text:
                self._answers.setdefault(event.index, _Answer()).add(event)
            return
        self._end(event)

    def embedded(self, request: EmbedRequest, embeddings: Embeddings) -> None:
        """The texts of ``request`` have been embedded."""
        self.is_complete = True
        self.is_for_nothing = not request.inputs
        self._usage = embeddings.usage
        if embeddings.vectors:
            self._said["gen_ai.embeddings.dimension.count"] = len(embeddings.vectors[0])
        if self._with_text:
            texts = [_short(each) if isinstance(each, str) else list(each) for each in request.inputs[:_MOST_TEXTS]]
            self._said[f"{OBSERVATION}.input"] = _json(texts)

    def attributes(self) -> dict[str, AttributeValue]:
        """All that is known by now."""
        said = dict(self._said)
        if self._reasons:
            said["gen_ai.response.finish_reasons"] = self._reasons
        if self._first_at is not None:
            said[f"{OBSERVATION}.completion_start_time"] = self._first_at.isoformat().replace("+00:00", "Z")
        if self._answers:
            said["gen_ai.output.messages"] = _json([each.message() for _, each in sorted(self._answers.items())])
        return {**said, **(_usage(self._usage, counts=self._counts) if self.is_complete else {})}

    def _end(self, end: TextEnd) -> None:
        if end.reason in _LOADING:
            self.is_for_nothing = True
        self._reasons.append(end.reason)
        if self._with_text:
            self._answers.setdefault(end.index, _Answer()).reason = end.reason
        if end.usage is not None:
            self.is_complete = True
            self._usage = end.usage


class _Answer:
    """One of the answers to a request, as it grows."""

    def __init__(self) -> None:
        self.reason = ""
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[dict[str, Any]] = []

    def add(self, piece: TextPiece) -> None:
        self._texts.append(piece.content)
        self._thoughts.append(piece.thinking)
        self._calls += [_call_part(call.id, call.name, call.arguments) for call in piece.tool_calls]

    def message(self) -> dict[str, Any]:
        thoughts, text = "".join(self._thoughts), "".join(self._texts)
        parts = [{"type": "reasoning", "content": _short(thoughts)}] if thoughts else []
        parts += [_text_part(text)] if text else []
        return {"role": "assistant", "parts": [*parts, *self._calls], "finish_reason": self.reason}


def _usage(usage: Usage, *, counts: bool) -> dict[str, AttributeValue]:
    """What the answer took. Tokens that somebody else counts are under names that nobody adds up."""
    tokens = (
        ("input_tokens", usage.prompt_tokens),
        ("output_tokens", usage.answer_tokens),
        ("cache_read.input_tokens", usage.cached_tokens),
    )
    said: dict[str, AttributeValue] = {}
    for name, count in tokens:
        said[f"gen_ai.usage.{name}" if counts else f"{METADATA}.{name.replace('.', '_')}"] = count
    times = {"load_ms": usage.load_ns, "prompt_ms": usage.prompt_ns, "answer_ms": usage.answer_ns}
    said |= {f"{METADATA}.{name}": ns // _MS for name, ns in times.items() if ns}
    if usage.truncated_tokens:
        said[f"{METADATA}.truncated_tokens"] = usage.truncated_tokens
    return said


def _input_messages(request: TextRequest) -> list[dict[str, Any]]:
    if request.messages is not None:
        return [_message(message) for message in request.messages[-_MOST_TEXTS:]]
    prompt = request.prompt if isinstance(request.prompt, str) else f"[{len(request.prompt or ())} tokens]"
    parts = [_text_part(prompt), *_picture_parts(request.images)]
    return [{"role": "user", "parts": parts}]


def _message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        answer = {"type": "tool_call_response", "id": message.tool_call_id, "response": _short(message.content)}
        return {"role": "tool", "parts": [answer]}
    parts = [_text_part(message.content)] if message.content else []
    parts += _picture_parts(message.images)
    parts += [_call_part(call.id, call.name, call.arguments) for call in message.tool_calls]
    return {"role": message.role, "parts": parts}


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "content": _short(text)}


def _picture_parts(pictures: Sequence[bytes]) -> list[dict[str, Any]]:
    return [_text_part(f"[picture of {len(picture)} bytes]") for picture in pictures]


def _call_part(identity: str, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "tool_call", "id": identity, "name": name, "arguments": dict(arguments)}


def _short(text: str) -> str:
    if len(text) <= _LONGEST_TEXT:
        return text
    return f"{text[:_LONGEST_TEXT]}... [{len(text) - _LONGEST_TEXT} more characters]"


def _json(value: Any) -> str:
    # A model may write half a character: that must not cost its answer.
    return json.dumps(value, default=str, ensure_ascii=False).encode("utf-8", "replace").decode()
