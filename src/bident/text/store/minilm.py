"""Makes a GGUF file of all-MiniLM-L6-v2, a sentence embedding model, out of its safetensors file.

The names of tensors and keys are llama.cpp's for BERT; matrices are kept as 16-bit numbers, what is
small or adds up errors as 32-bit ones.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bident.errors import Code, ServeError, invalid_arg

_PINNED = {
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
}
"""What lies next to ``model.safetensors``, whose hash is in the catalogue."""
_EMBEDDING_NAMES = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.LayerNorm": "token_embd_norm",
}
_BLOCK_NAMES = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
_KEPT_EXACT = ("token_types.weight", "position_embd.weight")
_SPECIAL_TOKENS = {"bos": "[CLS]", "eos": "[SEP]", "unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]"}
_WORD_START = "\u2581"
_NORMAL, _CONTROL, _UNUSED = 1, 3, 5


def write_gguf(folder: Path, target: Path) -> None:
    """Write ``target`` from the files of the model in ``folder``. Blocks for about a second.

    Raises INVALID_ARG when a file is not the known one, UNAVAILABLE when the ``gguf`` package is missing.
    """
    gguf = _writing_library()
    for name, sha256 in _PINNED.items():
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != sha256:
            raise invalid_arg(f"{name} is not the file of all-MiniLM-L6-v2 that is known here; it was not used")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    words = (folder / "vocab.txt").read_text("utf-8").splitlines()
    writer = gguf.GGUFWriter(target, "bert")
    try:
        _describe(writer, config, gguf)
        _add_vocabulary(writer, words)
        for name, tensor in _renamed(read_safetensors(folder / "model.safetensors"), config["num_hidden_layers"]):
            exact = tensor.ndim == 1 or name in _KEPT_EXACT
            writer.add_tensor(name, tensor.astype(np.float32 if exact else np.float16))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def read_safetensors(path: Path) -> dict[str, NDArray[np.float32]]:
    """The 32-bit tensors of a (pinned) safetensors file: a length, a JSON table of places, and the numbers."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    table = json.loads(content[8 : 8 + length])
    tensors = {}
    for name, entry in table.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            first, last = entry["data_offsets"]
            numbers = np.frombuffer(content, "<f4", (last - first) // 4, 8 + length + first)
            tensors[name] = numbers.reshape(entry["shape"])
    return tensors


def _describe(writer: Any, config: dict[str, Any], gguf: Any) -> None:
    writer.add_name("all-MiniLM-L6-v2")
    writer.add_license("apache-2.0")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)


def _add_vocabulary(writer: Any, words: list[str]) -> None:
    """Pieces that go on with a word lose their ``##``; the others get llama.cpp's mark of a word's start."""
    tokens, kinds = [], []
    for word in words:
        if word.startswith("[") and word.endswith("]") and len(word) > 2:
            tokens.append(word)
            kinds.append(_UNUSED if word.startswith("[unused") else _CONTROL)
        else:
            tokens.append(word[2:] if word.startswith("##") and len(word) > 2 else _WORD_START + word)
            kinds.append(_NORMAL)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([token.encode() for token in tokens])
    writer.add_token_types(kinds)
    writer.add_token_type_count(2)
    for role, word in _SPECIAL_TOKENS.items():
        getattr(writer, f"add_{role}_token_id")(words.index(word))


def _renamed(tensors: dict[str, NDArray[np.float32]], blocks: int) -> list[tuple[str, NDArray[np.float32]]]:
    names = dict(_EMBEDDING_NAMES)
    for block in range(blocks):
        names |= {f"encoder.layer.{block}.{old}": f"blk.{block}.{new}" for old, new in _BLOCK_NAMES.items()}
    found = []
    for name, tensor in tensors.items():
        stem, _, ending = name.rpartition(".")
        if stem in names:
            found.append((f"{names[stem]}.{ending}", tensor))
    return found


def _writing_library() -> Any:
    try:
        import gguf
    except ImportError as error:
        raise ServeError(
            Code.UNAVAILABLE, f"making this model needs the package 'gguf' ({error}): pip install 'bident[text]'"
        ) from error
    return gguf
