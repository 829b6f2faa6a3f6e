"""Tiny GGUF files of seeded random numbers, for paths that no real model here takes: what they answer means nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

_WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"\u2581{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")]
_WORDS += list("abcdefghijklmnopqrstuvwxyz")
_CONTROL_TOKENS = 4


class _Numbers:
    """Random tensors by their shapes (numpy's order), the same ones for the same ``seed``."""

    def __init__(self, writer: Any, seed: int) -> None:
        self._writer = writer
        self._random = np.random.default_rng(seed)

    def add(self, name: str, *shape: int, scale: float = 0.5) -> None:
        self._writer.add_tensor(name, (self._random.standard_normal(shape) * scale).astype(np.float32))

    def linear(self, name: str, wide: int, out: int) -> None:
        self.add(f"{name}.weight", out, wide)
        self.add(f"{name}.bias", out)

    def norm(self, name: str, wide: int) -> None:
        ones: NDArray[np.float32] = np.ones(wide, np.float32)
        self._writer.add_tensor(f"{name}.weight", ones)
        self.add(f"{name}.bias", wide, scale=0.1)


def _write(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def reranker(target: Path) -> Path:
    """A BERT of one block that scores a pair of texts: words of the letters a to z."""
    wide, inner = 32, 64
    writer = gguf.GGUFWriter(target, "bert")
    writer.add_name("synthetic reranker")
    writer.add_context_length(128)
    writer.add_embedding_length(wide)
    writer.add_feed_forward_length(inner)
    writer.add_block_count(1)
    writer.add_head_count(2)
    writer.add_layer_norm_eps(1e-6)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.RANK)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([word.encode() for word in _WORDS])
    writer.add_token_types([3 if place < _CONTROL_TOKENS else 1 for place in range(len(_WORDS))])
    writer.add_token_type_count(2)
    for role, word in {"pad": "[PAD]", "unk": "[UNK]", "bos": "[CLS]", "eos": "[SEP]", "sep": "[SEP]"}.items():
        getattr(writer, f"add_{role}_token_id")(_WORDS.index(word))
    numbers = _Numbers(writer, seed=1)
    numbers.add("token_embd.weight", len(_WORDS), wide)
    numbers.add("token_types.weight", 2, wide)
    numbers.add("position_embd.weight", 128, wide)
    numbers.norm("token_embd_norm", wide)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        numbers.linear(f"blk.0.{name}", wide, wide)
    numbers.norm("blk.0.attn_output_norm", wide)
    numbers.linear("blk.0.ffn_up", wide, inner)
    numbers.linear("blk.0.ffn_down", inner, wide)
    numbers.norm("blk.0.layer_output_norm", wide)
    numbers.linear("cls", wide, wide)
    numbers.linear("cls.output", wide, 1)
    _write(writer)
    return target


def adapter(target: Path, strength: float = 0.2) -> Path:
    """A LoRA adapter of rank 2 for the queries of SmolLM2's first block."""
    wide, rank = 576, 2
    writer = gguf.GGUFWriter(target, "llama")
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(rank))
    numbers = _Numbers(writer, seed=2)
    for name in ("attn_q", "attn_output"):
        numbers.add(f"blk.0.{name}.weight.lora_a", rank, wide, scale=strength)
        numbers.add(f"blk.0.{name}.weight.lora_b", wide, rank, scale=strength)
    _write(writer)
    return target


def projector(target: Path, out: int = 576) -> Path:
    """Eyes for SmolLM2: a vision transformer of two blocks that sees pictures of 64 by 64 pixels, as LLaVA has it."""
    wide, inner, size, patch, blocks = 32, 64, 64, 16, 2
    writer = gguf.GGUFWriter(target, "clip")
    writer.add_type(gguf.GGUFType.MMPROJ)
    writer.add_string("clip.projector_type", "mlp")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_bool("clip.use_gelu", True)
    for name, count in {
        "image_size": size,
        "patch_size": patch,
        "embedding_length": wide,
        "feed_forward_length": inner,
        "block_count": blocks,
        "attention.head_count": 2,
        "projection_dim": out,
    }.items():
        writer.add_uint32(f"clip.vision.{name}", count)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    numbers = _Numbers(writer, seed=3)
    numbers.add("v.patch_embd.weight", wide, 3, patch, patch, scale=0.05)
    numbers.add("v.patch_embd.bias", wide)
    numbers.add("v.position_embd.weight", (size // patch) ** 2, wide)
    for block in range(blocks):
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            numbers.linear(f"v.blk.{block}.{name}", wide, wide)
        for name in ("ln1", "ln2"):
            numbers.norm(f"v.blk.{block}.{name}", wide)
        numbers.linear(f"v.blk.{block}.ffn_up", wide, inner)
        numbers.linear(f"v.blk.{block}.ffn_down", inner, wide)
    numbers.linear("mm.0", wide, out)
    numbers.linear("mm.2", out, out)
    _write(writer)
    return target
