"""GGUF files small enough to write in a test, whole and damaged."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

U32, I32, F32, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10

LLAMA: dict[str, Any] = {
    "general.architecture": "llama",
    "general.file_type": 3,
    "llama.context_length": 2048,
    "llama.embedding_length": 64,
    "llama.block_count": 2,
    "llama.feed_forward_length": 128,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.tokens": ["<s>", "</s>", "a", "b"],
}
WEIGHTS = {"token_embd.weight": (64, 4)}


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def value_of(value: Any) -> bytes:
    """Type and value of one key."""
    if isinstance(value, bytes):  # as it is, for what should not be
        return value
    if isinstance(value, bool):
        return struct.pack("<IB", BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", U32, value)
    if isinstance(value, float):
        return struct.pack("<If", F32, value)
    if isinstance(value, str):
        return struct.pack("<I", STRING) + text(value)
    if value and isinstance(value[0], str):
        return struct.pack("<IIQ", ARRAY, STRING, len(value)) + b"".join(map(text, value))
    return struct.pack(f"<IIQ{len(value)}i", ARRAY, I32, len(value), *value)


def gguf_bytes(
    metadata: Mapping[str, Any] = LLAMA,
    tensors: Mapping[str, tuple[int, ...]] = WEIGHTS,
    *,
    version: int = 3,
    keys: int | None = None,
    tensor_count: int | None = None,
    offset: int = 0,
    seed: int = 0,
) -> bytes:
    """A GGUF file with F32 tensors; ``keys``, ``tensor_count`` and ``offset`` say what is not so."""
    count = len(tensors) if tensor_count is None else tensor_count
    head = b"GGUF" + struct.pack("<IQQ", version, count, len(metadata) if keys is None else keys)
    head += b"".join(text(name) + value_of(value) for name, value in metadata.items())
    weights = b""
    for name, shape in tensors.items():
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, offset + len(weights))
        size = 4
        for length in shape:
            size *= length
        weights += bytes((seed + place) % 251 for place in range(size))
    return head + bytes(-len(head) % 32) + weights


def write_gguf(path: Path, metadata: Mapping[str, Any] = LLAMA, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gguf_bytes(metadata, **options))
    return path
