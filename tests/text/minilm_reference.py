"""all-MiniLM-L6-v2 in plain numpy, from the weights as they were published: what its GGUF file has to agree with."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bident.text.store.minilm import read_safetensors

_gelu = np.vectorize(lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))), otypes=[np.float32])
_PIECES = re.compile(r"\w+|[^\w\s]")


class MiniLM:
    """The model in ``folder``, as sentence-transformers runs it."""

    def __init__(self, folder: Path) -> None:
        self._weights = read_safetensors(folder / "model.safetensors")
        self._config = json.loads((folder / "config.json").read_text())
        words = (folder / "vocab.txt").read_text("utf-8").splitlines()
        self._ids = {word: number for number, word in enumerate(words)}

    def embed(self, text: str) -> NDArray[np.float32]:
        """The vector of a text, of length 1."""
        tokens = self.tokens(text)
        state = (
            self._weights["embeddings.word_embeddings.weight"][tokens]
            + self._weights["embeddings.position_embeddings.weight"][: len(tokens)]
            + self._weights["embeddings.token_type_embeddings.weight"][0]
        )
        state = self._norm(state, "embeddings.LayerNorm")
        for layer in range(self._config["num_hidden_layers"]):
            name = f"encoder.layer.{layer}"
            state = self._norm(state + self._attention(state, name), f"{name}.attention.output.LayerNorm")
            inner = _gelu(self._dense(state, f"{name}.intermediate.dense"))
            state = self._norm(state + self._dense(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")
        mean = state.mean(axis=0)
        return mean / np.linalg.norm(mean)

    def tokens(self, text: str) -> list[int]:
        """WordPiece: the longest pieces of each word that the vocabulary has."""
        found = [self._ids["[CLS]"]]
        for word in _PIECES.findall(text.lower()):
            start = 0
            while start < len(word):
                mark = "##" if start else ""
                end = next(end for end in range(len(word), start, -1) if mark + word[start:end] in self._ids)
                found.append(self._ids[mark + word[start:end]])
                start = end
        return [*found, self._ids["[SEP]"]]

    def _attention(self, state: NDArray[np.float32], name: str) -> NDArray[np.float32]:
        heads = self._config["num_attention_heads"]
        query, key, value = (
            self._dense(state, f"{name}.attention.self.{part}").reshape(len(state), heads, -1).swapaxes(0, 1)
            for part in ("query", "key", "value")
        )
        scores = query @ key.swapaxes(1, 2) / math.sqrt(query.shape[-1])
        chances = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = (chances / chances.sum(axis=-1, keepdims=True)) @ value
        return self._dense(mixed.swapaxes(0, 1).reshape(len(state), -1), f"{name}.attention.output.dense")

    def _dense(self, state: NDArray[np.float32], name: str) -> NDArray[np.float32]:
        return state @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _norm(self, state: NDArray[np.float32], name: str) -> NDArray[np.float32]:
        centred = state - state.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + self._config["layer_norm_eps"])
        return centred / spread * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
