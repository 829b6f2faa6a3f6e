"""What the weights of a text model say about themselves, as far as serving them needs to know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bident.errors import MalformedError
from bident.text.ggml_types import FILE_TYPES
from bident.text.gguf_header import Array, Header, read_header

_TOKENS = "tokenizer.ggml.tokens"
_INFILL_TOKENS = (
    {b"<|fim_prefix|>", b"<|fim_suffix|>", b"<|fim_middle|>"},
    {b"<fim_prefix>", b"<fim_suffix>", b"<fim_middle>"},
    {b"<fim-prefix>", b"<fim-suffix>", b"<fim-middle>"},
    {b"<|code_prefix|>", b"<|code_suffix|>", b"<|code_middle|>"},
    {"<\uff5cfim▁begin\uff5c>".encode(), "<\uff5cfim▁hole\uff5c>".encode(), "<\uff5cfim▁end\uff5c>".encode()},
    {"▁<PRE>".encode(), "▁<SUF>".encode(), "▁<MID>".encode()},
    {b"<PRE>", b"<SUF>", b"<MID>"},
)
"""How vocabularies spell the start, the gap and the end of a text to be filled in, where no id says it."""
_INFILL_KEYS = ("fim_pre_token_id", "fim_suf_token_id", "fim_mid_token_id")
_OLD_INFILL_KEYS = ("prefix_token_id", "suffix_token_id", "middle_token_id")

POOLINGS = {0: "none", 1: "mean", 2: "cls", 3: "last", 4: "rank"}
_ENCODERS = ("bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3", "modern-bert",
             "eurobert", "gemma-embedding", "t5encoder")  # fmt: skip
"""Architectures that embed even where the file names no pooling."""
_MOST_BLOCKS = 1024


@dataclass(frozen=True)
class GgufFacts:
    """Facts from a GGUF header. What the file does not say is 0, empty or None.

    Counts of heads are those of one block where all blocks agree, otherwise of the largest;
    ``kv_heads`` is the sum over all blocks, which the cache of a context grows with.
    """

    architecture: str = ""
    kind: str = "model"
    """``model``, ``adapter`` (LoRA) or ``mmproj`` (the eyes of a vision model)."""
    context_length: int = 0
    """Tokens that the model was trained for."""
    embedding_length: int = 0
    block_count: int = 0
    head_count: int = 0
    head_count_kv: int = 0
    kv_heads: int = 0
    key_length: int = 0
    """Numbers of one key of one head; likewise ``value_length``."""
    value_length: int = 0
    feed_forward_length: int = 0
    vocabulary_size: int = 0
    parameter_count: int = 0
    quantization: str = "unknown"
    chat_template: str | None = None
    """Jinja."""
    pooling: str = ""
    """``mean``, ``cls``, ``last`` or ``rank`` of a model that embeds or reranks; "" of one that writes."""
    causal: bool = True
    bos_token: int | None = None
    eos_token: int | None = None
    infill: bool = False
    """The vocabulary can mark a gap to be filled in."""
    vision: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Every key. Of arrays, those longer than ``gguf_header`` keeps have only their count."""


def read_facts(path: Path) -> GgufFacts:
    """The facts of the file at ``path``. Blocks for a few milliseconds.

    Raises MalformedError with the reason when it is no usable GGUF file, OSError when it cannot be read.
    """
    watched = frozenset().union(*_INFILL_TOKENS)
    return facts_of(read_header(path, watch={_TOKENS: watched}), path.name)


def facts_of(header: Header, file_name: str) -> GgufFacts:
    """The facts in ``header``. Raises MalformedError naming ``file_name`` where one is of a wrong type or size."""
    read = _Keys(header.metadata, file_name)
    architecture = read.text("general.architecture")
    if not architecture:
        raise MalformedError(f"{file_name} is not a usable GGUF file: it has no general.architecture")
    kind = read.text("general.type") or "model"
    if architecture == "clip":
        kind = "mmproj"
    read.prefix = architecture
    context = read.count("context_length")
    if kind == "model" and context == 0:
        raise MalformedError(f"{file_name} cannot be used: its {architecture}.context_length is 0 or missing")
    return GgufFacts(
        architecture=architecture,
        kind=kind,
        context_length=context,
        **_sizes(read, file_name),
        vocabulary_size=_vocabulary(header, read),
        parameter_count=sum(tensor.elements for tensor in header.tensors),
        quantization=_quantization(header),
        chat_template=read.text("tokenizer.chat_template") or None,
        pooling=_pooling(architecture, read.optional_count("pooling_type")),
        causal=header.metadata.get(f"{architecture}.attention.causal") is not False,
        bos_token=read.token("bos_token_id"),
        eos_token=read.token("eos_token_id"),
        infill=_infill(header),
        vision=bool(read.optional_count("vision.block_count")),
        metadata=header.metadata,
    )


def _sizes(read: _Keys, file_name: str) -> dict[str, int]:
    """The facts that memory is reckoned with."""
    blocks = read.count("block_count")
    if blocks > _MOST_BLOCKS:
        raise MalformedError(f"{file_name} declares {blocks} blocks, {_MOST_BLOCKS} are the most")
    heads = read.counts("attention.head_count", blocks)
    kv_heads = read.counts("attention.head_count_kv", blocks) or heads
    width, most_heads = read.count("embedding_length"), max(heads, default=0)
    head_length = width // most_heads if most_heads else 0
    return {
        "embedding_length": width,
        "block_count": blocks,
        "head_count": most_heads,
        "head_count_kv": max(kv_heads, default=0),
        "kv_heads": sum(kv_heads),
        "key_length": read.count("attention.key_length") or head_length,
        "value_length": read.count("attention.value_length") or head_length,
        "feed_forward_length": max(read.counts("feed_forward_length", blocks), default=0),
    }


class _Keys:
    """Reads metadata by key, refusing what is of the wrong type. Keys without a prefix are the architecture's."""

    def __init__(self, metadata: Mapping[str, Any], file_name: str) -> None:
        self._metadata, self._file_name = metadata, file_name
        self.prefix = ""

    def text(self, key: str) -> str:
        value = self._metadata.get(key, "")
        if not isinstance(value, str):
            raise self._wrong(key, value, "a text")
        return value

    def count(self, key: str) -> int:
        return self.optional_count(key) or 0

    def optional_count(self, key: str) -> int | None:
        value = self._metadata.get(f"{self.prefix}.{key}")
        if isinstance(value, Array):  # one for each block
            return max(self.counts(key, _MOST_BLOCKS), default=0)
        return None if value is None else self._counted(key, value)

    def counts(self, key: str, blocks: int) -> list[int]:
        """One count for each block, from one for all or an array; empty where there is none."""
        value = self._metadata.get(f"{self.prefix}.{key}")
        if value is None:
            return []
        if isinstance(value, Array):
            return [self._counted(key, each) for each in value.values or ()]
        return [self._counted(key, value)] * max(blocks, 1)

    def token(self, key: str) -> int | None:
        value = self._metadata.get(f"tokenizer.ggml.{key}")
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def _counted(self, key: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 32:
            raise self._wrong(f"{self.prefix}.{key}", value, "a count")
        return value

    def _wrong(self, key: str, value: Any, expected: str) -> MalformedError:
        return MalformedError(f"{self._file_name} cannot be used: its {key} is {str(value)[:80]!r}, not {expected}")


def _vocabulary(header: Header, read: _Keys) -> int:
    tokens = header.metadata.get(_TOKENS)
    return tokens.count if isinstance(tokens, Array) else read.count("vocab_size")


def _pooling(architecture: str, pooling: int | None) -> str:
    if pooling is None:
        return "mean" if architecture in _ENCODERS else ""
    return POOLINGS.get(pooling, "") if pooling else ""


def _infill(header: Header) -> bool:
    ids = [{f"tokenizer.ggml.{key}" for key in keys} for keys in (_INFILL_KEYS, _OLD_INFILL_KEYS)]
    found = header.found.get(_TOKENS, frozenset())
    return any(keys <= header.metadata.keys() for keys in ids) or any(words <= found for words in _INFILL_TOKENS)


def _quantization(header: Header) -> str:
    """The name of the mix as the file has it; without one, the format that most of the weights are in."""
    named = header.metadata.get("general.file_type")
    if isinstance(named, int) and named in FILE_TYPES:
        return FILE_TYPES[named]
    weights = Counter[str]()
    for tensor in header.tensors:
        weights[tensor.type_name] += tensor.elements
    return weights.most_common(1)[0][0] if weights else "unknown"
