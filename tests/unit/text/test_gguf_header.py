"""The reader of GGUF headers: right on whole files, plain words on anything else, and never much memory."""

from __future__ import annotations

import contextlib
import random
import struct
import tracemalloc

import pytest

from bident.errors import MalformedError
from bident.text.gguf import read_facts
from bident.text.gguf_header import read_header
from tests.unit.text.gguf_files import ARRAY, LLAMA, STRING, U32, gguf_bytes, text, write_gguf


def read(tmp_path, content: bytes, **options):
    path = tmp_path / "some.gguf"
    path.write_bytes(content)
    return read_header(path, **options)


def test_a_whole_file(tmp_path):
    header = read(tmp_path, gguf_bytes({**LLAMA, "some.flag": True, "some.number": 1.5, "some.list": [1, -2, 3]}))
    assert header.version == 3
    assert header.metadata["general.architecture"] == "llama"
    assert header.metadata["some.flag"] is True
    assert header.metadata["some.number"] == 1.5
    assert header.metadata["some.list"].values == (1, -2, 3)
    assert header.metadata["tokenizer.ggml.tokens"].values == ("<s>", "</s>", "a", "b")
    (tensor,) = header.tensors
    assert (tensor.name, tensor.shape, tensor.type_name, tensor.elements) == ("token_embd.weight", (64, 4), "F32", 256)


def test_long_arrays_are_counted_and_searched_but_not_kept(tmp_path):
    words = [f"token{number}" for number in range(3000)] + ["<fim_prefix>", "ü" * 700_000, "last"]
    content = gguf_bytes({**LLAMA, "tokenizer.ggml.tokens": words, "some.numbers": list(range(5000)), "after": 7})
    header = read(tmp_path, content, watch={"tokenizer.ggml.tokens": {b"<fim_prefix>", b"absent"}})
    assert (header.metadata["tokenizer.ggml.tokens"].count, header.metadata["tokenizer.ggml.tokens"].values) == (
        3003,
        None,
    )
    assert (header.metadata["some.numbers"].count, header.metadata["some.numbers"].values) == (5000, None)
    assert header.metadata["after"] == 7
    assert header.found["tokenizer.ggml.tokens"] == {b"<fim_prefix>"}
    assert read(tmp_path, content, keep=10_000).metadata["tokenizer.ggml.tokens"].values == tuple(words)


def key(name: str, raw: bytes) -> dict[str, bytes]:
    return {"general.architecture": "llama", name: raw}


DAMAGED = {
    "empty": (b"", "it is empty"),
    "magic alone": (b"GGUF", "ends inside its header"),
    "another file": (b"PK\x03\x04" + bytes(100), "not with b'GGUF'"),
    "version 1": (gguf_bytes(version=1), "of version 1"),
    "version 99": (gguf_bytes(version=99), "of version 99"),
    "big-endian": (gguf_bytes(version=3 << 24), "big-endian"),
    "keys without end": (gguf_bytes(keys=1 << 62), "metadata keys"),
    "more keys than there are": (gguf_bytes(keys=11), "llama|type|ends|long|twice"),
    "tensors without end": (gguf_bytes(tensor_count=1 << 62), "tensors"),
    "a key without end": (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 60), "a metadata key is"),
    "a value without end": (
        gguf_bytes(key("a", struct.pack("<IQ", STRING, 1 << 60))),
        "'a' is 1152921504606846976 bytes",
    ),
    "an unknown type": (gguf_bytes(key("a", struct.pack("<IQ", 13, 0))), "unknown type 13"),
    "nested arrays": (gguf_bytes(key("a", struct.pack("<IIQ", ARRAY, ARRAY, 1))), "an array of arrays"),
    "an array of nothing known": (gguf_bytes(key("a", struct.pack("<IIQ", ARRAY, 77, 1))), "unknown type 77"),
    "strings without end": (gguf_bytes(key("a", struct.pack("<IIQ", ARRAY, STRING, 1 << 40))), "strings"),
    "numbers without end": (gguf_bytes(key("a", struct.pack("<IIQ", ARRAY, U32, 1 << 50))), "numbers"),
    "numbers past the end": (gguf_bytes(key("a", struct.pack("<IIQ", ARRAY, U32, 1 << 20))), "ends inside 'a'"),
    "strings past the end": (gguf_bytes(key("a", struct.pack("<IIQ", ARRAY, STRING, 1 << 20))), "some.gguf is not"),
    "a key twice": (gguf_bytes(LLAMA)[:24] + 2 * (text("k") + struct.pack("<II", U32, 1)) + bytes(99), "'k' twice"),
    "no dimensions": (gguf_bytes(tensors={"w": ()}), "0 dimensions"),
    "many dimensions": (gguf_bytes(tensors={"w": (1,) * 9}), "9 dimensions"),
    "weights past the end": (gguf_bytes(offset=1 << 62), "it is cut off"),
    "half a file": (gguf_bytes()[:-100], "it is cut off"),
    "more text than anybody needs": (
        gguf_bytes(
            {**LLAMA, **{f"k{number}": struct.pack("<IQ", STRING, 15 << 20) + bytes(15 << 20) for number in range(5)}}
        ),
        "more than 67108864 bytes",
    ),
    "a crooked alignment": (gguf_bytes({**LLAMA, "general.alignment": 3}), "general.alignment is 3"),
}


@pytest.mark.parametrize(("content", "reason"), DAMAGED.values(), ids=DAMAGED.keys())
def test_damaged_files_say_what_is_wrong(tmp_path, content, reason):
    tracemalloc.start()
    try:
        with pytest.raises(MalformedError, match=reason):
            read(tmp_path, content)
        assert tracemalloc.get_traced_memory()[1] < (8 << 20) + 2 * len(content)
    finally:
        tracemalloc.stop()


def test_every_cut_and_many_flipped_bytes_end_in_facts_or_an_error(tmp_path):
    whole = gguf_bytes()
    chance = random.Random(7)
    damaged = [whole[:length] for length in range(0, len(whole) - 1024, 7)]
    for _ in range(500):
        flipped = bytearray(whole)
        for _ in range(chance.randint(1, 6)):
            flipped[chance.randrange(600)] = chance.randrange(256)
        damaged.append(bytes(flipped))
    path = tmp_path / "some.gguf"
    for content in damaged:
        path.write_bytes(content)
        with contextlib.suppress(MalformedError):
            assert read_facts(path).architecture
    for length in range(0, len(whole) - 1024, 7):
        path.write_bytes(whole[:length])
        with pytest.raises(MalformedError):
            read_facts(path)


def test_facts_of_a_chat_model(tmp_path):
    facts = read_facts(write_gguf(tmp_path / "a.gguf", {**LLAMA, "tokenizer.chat_template": "{{ messages }}"}))
    assert (facts.architecture, facts.kind, facts.context_length, facts.embedding_length) == (
        "llama",
        "model",
        2048,
        64,
    )
    assert (facts.block_count, facts.head_count, facts.head_count_kv, facts.kv_heads) == (2, 4, 2, 4)
    assert (facts.key_length, facts.value_length, facts.feed_forward_length) == (16, 16, 128)
    assert (facts.parameter_count, facts.quantization, facts.vocabulary_size) == (256, "Q4_1", 4)
    assert (facts.chat_template, facts.pooling, facts.causal, facts.bos_token) == ("{{ messages }}", "", True, 1)
    assert (facts.eos_token, facts.infill, facts.vision) == (None, False, False)


def test_facts_that_differ_from_block_to_block(tmp_path):
    per_block = {**LLAMA, "llama.attention.head_count_kv": [2, 0], "llama.feed_forward_length": [64, 256]}
    facts = read_facts(write_gguf(tmp_path / "a.gguf", per_block))
    assert (facts.head_count_kv, facts.kv_heads, facts.feed_forward_length) == (2, 2, 256)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"llama.context_length": 0}, "context_length is 0"),
        ({"llama.block_count": 1 << 20}, "blocks"),
        ({"llama.block_count": "two"}, "not a count"),
        ({"llama.attention.head_count": 1.5}, "not a count"),
        ({"llama.attention.head_count_kv": [1, -1]}, "not a count"),
        ({"general.architecture": ""}, "no general.architecture"),
        ({"general.architecture": 7}, "not a text"),
        ({"general.architecture": "other"}, "other.context_length"),
        ({"tokenizer.chat_template": 7}, "not a text"),
    ],
)
def test_facts_that_cannot_be(tmp_path, changed, reason):
    with pytest.raises(MalformedError, match=reason):
        read_facts(write_gguf(tmp_path / "a.gguf", {**LLAMA, **changed}))


@pytest.mark.parametrize(
    "extra",
    [
        {"tokenizer.ggml.tokens": ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"]},
        {f"tokenizer.ggml.fim_{part}_token_id": 1 for part in ("pre", "suf", "mid")},
        {f"tokenizer.ggml.{part}_token_id": 1 for part in ("prefix", "suffix", "middle")},
    ],
)
def test_a_vocabulary_that_can_mark_a_gap(tmp_path, extra):
    assert read_facts(write_gguf(tmp_path / "a.gguf", {**LLAMA, **extra})).infill


def test_other_kinds_of_files(tmp_path):
    projector = {"general.architecture": "clip", "general.type": "mmproj", "clip.vision.block_count": 3}
    adapter = {"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora"}
    embedder = {"general.architecture": "bert", "bert.context_length": 512, "bert.pooling_type": 1}
    assert read_facts(write_gguf(tmp_path / "a.gguf", projector)).kind == "mmproj"
    assert read_facts(write_gguf(tmp_path / "b.gguf", adapter)).kind == "adapter"
    facts = read_facts(write_gguf(tmp_path / "c.gguf", {**embedder, "bert.attention.causal": False}))
    assert (facts.pooling, facts.causal, facts.quantization) == ("mean", False, "F32")
