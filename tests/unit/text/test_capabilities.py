"""What models can be asked for, and how large Ollama says they are."""

from __future__ import annotations

import pytest

from bident.text.capabilities import capabilities_of, parameter_size
from bident.text.gguf import GgufFacts

TOOLS = "{% if tools %}{{ tools | tojson }}{% endif %}"
THINKING = "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"


@pytest.mark.parametrize(
    ("facts", "template", "projector", "expected"),
    [
        (GgufFacts(), None, False, {"completion"}),
        (GgufFacts(pooling="mean"), None, False, {"embedding"}),
        (GgufFacts(pooling="rank"), None, False, {"rerank"}),
        (GgufFacts(chat_template=TOOLS), None, False, {"completion", "tools"}),
        (GgufFacts(chat_template="I have no tools{% if x %}{% endif %}"), None, False, {"completion"}),
        (GgufFacts(chat_template=THINKING), None, False, {"completion", "thinking"}),
        (GgufFacts(infill=True), None, False, {"completion", "insert"}),
        (GgufFacts(vision=True), None, False, {"completion", "vision"}),
        (GgufFacts(), None, True, {"completion", "vision"}),
        (GgufFacts(), "{{ .Prompt }}{{ .Suffix }}", False, {"completion", "insert"}),
        (GgufFacts(), "{{ range .Tools }}{{ end }}", False, {"completion", "tools"}),
        (GgufFacts(), "{{ if $.IsThinkSet }}{{ .Thinking }}{{ end }}", False, {"completion", "thinking"}),
    ],
)
def test_capabilities(facts, template, projector, expected):
    assert capabilities_of(facts, template, projector) == expected


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0"),
        (999, "999"),
        (22_600, "23K"),
        (134_515_008, "134.52M"),
        (7_000_000, "7M"),
        (8_030_261_248, "8.0B"),
        (70_000_000_000, "70B"),
    ],
)
def test_parameter_size(count, shown):
    assert parameter_size(count) == shown
