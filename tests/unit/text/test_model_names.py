"""Names of text models: Ollama's rules, and nothing that could leave the store."""

from __future__ import annotations

import pytest

from bident.errors import Code, ServeError
from bident.text.names import ModelName


@pytest.mark.parametrize(
    ("text", "full", "short"),
    [
        ("smollm2", "registry.ollama.ai/library/smollm2:latest", "smollm2:latest"),
        ("Llama3.2:1b-Q4_K_M", "registry.ollama.ai/library/Llama3.2:1b-Q4_K_M", "Llama3.2:1b-Q4_K_M"),
        ("me/pirate", "registry.ollama.ai/me/pirate:latest", "me/pirate:latest"),
        ("localhost:5000/me/pirate:v1", "localhost:5000/me/pirate:v1", "localhost:5000/me/pirate:v1"),
        ("hf.co/owner/Some-Model_GGUF", "hf.co/owner/Some-Model_GGUF:latest", "hf.co/owner/Some-Model_GGUF:latest"),
        ("https://registry.ollama.ai/library/a:b", "registry.ollama.ai/library/a:b", "a:b"),
        ("registry.example/library/a", "registry.example/library/a:latest", "registry.example/library/a:latest"),
    ],
)
def test_what_is_left_out_is_filled_in(text, full, short):
    name = ModelName.parse(text)
    assert (name.full, name.short, str(name)) == (full, short, short)
    assert ModelName.parse(name.short) == name


def test_case_is_kept_but_does_not_tell_models_apart():
    assert ModelName.parse("SmolLM2").model == "SmolLM2"
    assert ModelName.parse("SmolLM2").key == ModelName.parse("smollm2:LATEST").key


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ":",
        "a:",
        ":tag",
        "/",
        "a/",
        "/a",
        "..",
        "../a",
        "a/../b",
        "a/..",
        "a:..",
        "../../etc/passwd",
        "a/b/c/d",
        "a b",
        "a\n",
        "a\0",
        "a\\b",
        ".hidden",
        "-flag",
        "a:b:c",
        "a@sha256",
        "ns.dot/model",
        "ümlaut",
        "a" * 81,
        "a:" + "t" * 81,
        "n" * 81 + "/a",
        "h" * 351 + "/n/a",
        "x" * 100_000,
        "//a",
        "host//a",
        "~/a",
        "%2e%2e/a",
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(ServeError, match="invalid model name") as caught:
        ModelName.parse(text)
    assert caught.value.code is Code.INVALID_ARG
    assert len(caught.value.message) < 500
