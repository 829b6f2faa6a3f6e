"""Run by the Python of ``.venvs/hf``: makes a tiny DistilBERT, and prints what ``pipeline`` says of some texts.

    python huggingface_model.py FOLDER SEED TEXTS

Weights are random, from SEED or the first seed after it that tells the texts apart. TEXTS is a JSON
list; the answer is a JSON list of ``[label, score]``, the last line that is printed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from transformers import BertTokenizerFast, DistilBertConfig, DistilBertForSequenceClassification, pipeline

_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_WORDS = [*_SPECIAL, "this", "movie", "is", "fantastic", "good", "bad", "just", "okay", "tres", "content"]
_LONGEST = 16


def main() -> None:
    folder, seed, texts = Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    answers = _made(folder, seed, texts)
    # Random weights often say the same of every text, which would prove little.
    while len({label for label, _ in answers}) < 2:
        seed += 1
        answers = _made(folder, seed, texts)
    sys.stdout.write(json.dumps(answers) + "\n")


def _made(folder: Path, seed: int, texts: list[str]) -> list[tuple[str, float]]:
    _make(folder, seed)
    classifier = pipeline("text-classification", model=str(folder), device=-1, truncation=True)
    return [(answer["label"], answer["score"]) for answer in classifier(texts)]


def _make(folder: Path, seed: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(_WORDS) + "\n", encoding="utf-8")
    torch.manual_seed(seed)
    config = DistilBertConfig(
        vocab_size=len(_WORDS),
        dim=16,
        hidden_dim=32,
        n_layers=2,
        n_heads=2,
        max_position_embeddings=_LONGEST,
        initializer_range=1.0,
        id2label={0: "NEGATIVE", 1: "POSITIVE"},
        label2id={"NEGATIVE": 0, "POSITIVE": 1},
    )
    DistilBertForSequenceClassification(config).save_pretrained(folder)
    BertTokenizerFast(vocab=str(vocabulary), model_max_length=_LONGEST).save_pretrained(folder)


if __name__ == "__main__":
    main()
