"""What is asked of a text model and what it answers, whatever the protocol.

Both text doors (Ollama's and OpenAI's) turn their bodies into these and write these as their bodies.
Options go by Ollama's names; durations are nanoseconds, times to live seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool that the model asks for. ``arguments`` keep the order of their keys."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Message:
    """One turn of a conversation. ``images`` are the bytes of picture files."""

    role: str
    content: str = ""
    thinking: str = ""
    images: Sequence[bytes] = ()
    tool_calls: Sequence[ToolCall] = ()
    tool_name: str = ""
    tool_call_id: str = ""


@dataclass(frozen=True)
class ToolChoice:
    """Whether the model must call a tool: ``auto``, ``none``, ``required``, or the one tool ``name``."""

    mode: str = "auto"
    name: str = ""


@dataclass(kw_only=True)
class TextRequest:
    """A conversation to go on with (``messages``) or a text to complete (``prompt``): one of the two is set.

    ``options`` are sampling and load-time options as Ollama names them, checked for their types;
    None means that the client gave none. ``keep_alive`` is how long the model stays loaded
    afterwards: seconds, ``math.inf`` for ever, 0 not at all, None as the server's default.
    """

    model: str
    messages: Sequence[Message] | None = None
    prompt: str | Sequence[int] | None = None
    suffix: str = ""
    system: str | None = None
    template: str | None = None
    raw: bool = False
    """The prompt is given to the model as it is, without its template."""
    images: Sequence[bytes] = ()
    """The pictures of a prompt; those of a conversation are in its messages."""
    context: Sequence[int] = ()
    """Tokens that an earlier answer to ``/api/generate`` ended with."""
    tools: Sequence[Mapping[str, Any]] = ()
    """OpenAI's form: ``{"type": "function", "function": {"name", "description", "parameters"}}``."""
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    format: str | Mapping[str, Any] | None = None
    """``json`` for any JSON, or the JSON schema that the answer has to satisfy."""
    think: bool | str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    logprobs: bool = False
    top_logprobs: int = 0
    count: int = 1
    """How many answers are wanted (OpenAI's ``n``)."""
    truncate: bool = True
    shift: bool = True
    keep_alive: float | None = None


@dataclass(frozen=True)
class TokenChance:
    """A token of an answer, how likely it was, and what else was."""

    token: str
    logprob: float
    bytes: Sequence[int]
    top: Sequence[TokenChance] = ()


@dataclass(frozen=True)
class TextPiece:
    """What has been added to the answer number ``index``."""

    index: int = 0
    content: str = ""
    thinking: str = ""
    tool_calls: Sequence[ToolCall] = ()
    chances: Sequence[TokenChance] = ()


@dataclass(frozen=True)
class Usage:
    """What an answer took. Counts are tokens."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    """How many of the prompt's tokens were known from an earlier request."""
    prompt_ns: int = 0
    answer_tokens: int = 0
    answer_ns: int = 0
    load_ns: int = 0
    context_length: int = 0
    """How many tokens prompt and answer may have together, as the model is loaded now."""
    truncated_tokens: int = 0
    """How many tokens of the conversation were left out because they did not fit; never silently."""

    @property
    def is_full(self) -> bool:
        """Whether prompt and answer fill the context: what was answered had to end there."""
        return 0 < self.context_length <= self.prompt_tokens + self.answer_tokens


@dataclass(frozen=True)
class TextEnd:
    """The end of the answer number ``index``.

    ``reason`` is ``stop``, ``length``, ``tool_calls``, ``load`` or ``unload``. The last end of a
    request carries its ``usage``, and for ``/api/generate`` the ``context`` to go on from.
    """

    index: int = 0
    reason: str = "stop"
    usage: Usage | None = None
    context: Sequence[int] = ()


TextEvent: TypeAlias = TextPiece | TextEnd


@dataclass(kw_only=True)
class EmbedRequest:
    """Texts (or lists of tokens) to embed. ``dimensions`` cuts the vectors; 0 leaves them whole."""

    model: str
    inputs: Sequence[str | Sequence[int]]
    truncate: bool = True
    dimensions: int = 0
    normalise: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    keep_alive: float | None = None


@dataclass(frozen=True)
class Embeddings:
    """One vector for each input, in their order."""

    vectors: Sequence[Sequence[float]]
    usage: Usage


@dataclass(kw_only=True)
class RerankRequest:
    """``documents`` to order by how well they answer ``query``; ``top`` of them, 0 for all."""

    model: str
    query: str
    documents: Sequence[str]
    top: int = 0
    keep_alive: float | None = None


@dataclass(frozen=True)
class Ranked:
    """A document, by its place in the request, and its score."""

    index: int
    score: float
