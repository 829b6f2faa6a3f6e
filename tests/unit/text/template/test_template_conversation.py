"""Conversations rendered by templates in the styles of common models, all of our own making."""

from __future__ import annotations

import pytest

from bident.errors import ServeError
from bident.text.template.conversation import PromptTemplate, Thinking
from bident.wire.text import Message, ToolCall

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "its name"},
                "days": {"type": ["integer", "null"]},
            },
            "required": ["city"],
        },
    },
}
CALL = Message("assistant", tool_calls=[ToolCall("call_1", "weather", {"city": "Rome", "days": 2})])

CHATML = """
{{- if or .System .Tools }}<|im_start|>system
{{ .System }}
{{- if .Tools }}
# Tools
{{- range .Tools }}
{{ . }}
{{- end }}
{{- end }}<|im_end|>
{{ end }}
{{- range $place, $message := .Messages }}
{{- $last := eq (len (slice $.Messages $place)) 1 }}
{{- if eq .Role "user" }}<|im_start|>user
{{ .Content }}<|im_end|>
{{ else if eq .Role "assistant" }}<|im_start|>assistant
{{ if .Content }}{{ .Content }}{{ else if .ToolCalls }}<tool_call>
{{ range .ToolCalls }}{"name": "{{ .Function.Name }}", "arguments": {{ .Function.Arguments }}}
{{ end }}</tool_call>{{ end }}{{ if not $last }}<|im_end|>
{{ end }}
{{- else if eq .Role "tool" }}<|im_start|>user
<tool_response>{{ .Content }}</tool_response><|im_end|>
{{ end }}
{{- if and (ne .Role "assistant") $last }}<|im_start|>assistant
{{ end }}
{{- end }}"""

LLAMA3 = """
{{- range $place, $_ := .Messages }}<|start_header_id|>{{ .Role }}<|end_header_id|>

{{ .Content }}<|eot_id|>{{ end }}<|start_header_id|>assistant<|end_header_id|>

"""

MISTRAL = """
{{- range $index, $_ := .Messages }}
{{- if eq .Role "user" }}
{{- if and (le (len (slice $.Messages $index)) 2) $.Tools }}[AVAILABLE_TOOLS] {{ json $.Tools }}[/AVAILABLE_TOOLS]
{{- end }}[INST] {{ if and (eq (len (slice $.Messages $index)) 1) $.System }}{{ $.System }}

{{ end }}{{ .Content }}[/INST]
{{- else if eq .Role "assistant" }}
{{- if .Content }} {{ .Content }}</s>
{{- else if .ToolCalls }}[TOOL_CALLS] [
{{- range .ToolCalls }}{"name": "{{ .Function.Name }}", "arguments": {{ json .Function.Arguments }}}
{{- end }}]</s>
{{- end }}
{{- else if eq .Role "tool" }}[TOOL_RESULTS] {"content": {{ json .Content }}}[/TOOL_RESULTS]
{{- end }}
{{- end }}"""

GEMMA = """<start_of_turn>user
{{ if .System }}{{ .System }} {{ end }}{{ .Prompt }}<end_of_turn>
<start_of_turn>model
{{ .Response }}<end_of_turn>
"""

COMMAND_R = """
{{- if .Tools }}## Tools
{{ range .Tools }}
def {{ .Function.Name }}(
{{- range $name, $it := .Function.Parameters.Properties }}{{ $name }}: {{ $it.ToTypeScriptType }}, {{ end }})
    {{ .Function.Description }}
{{ end }}{{ end }}
{{- range .Messages }}<|{{ .Role }}|>{{ .Content }}
{{- range .ToolCalls }}{{ range $name, $value := .Function.Arguments }}({{ $name }}={{ $value }}){{ end }}{{ end }}
{{- end }}<|chatbot|>"""


def rendered(template: str, *messages: Message, **more: object) -> str:
    return PromptTemplate.read(template).conversation(messages, **more)  # type: ignore[arg-type]


def test_chatml_with_tools() -> None:
    system, user, result = Message("system", "Be brief."), Message("user", "Weather?"), Message("tool", "sunny")

    text = rendered(CHATML, system, user, CALL, result, tools=[WEATHER])

    assert text.startswith('<|im_start|>system\nBe brief.\n# Tools\n{"type":"function","function":{"name":"weather"')
    assert '<|im_start|>assistant\n<tool_call>\n{"name": "weather", "arguments": {"city":"Rome","days":2}}\n' in text
    assert text.endswith("<tool_response>sunny</tool_response><|im_end|>\n<|im_start|>assistant\n")


def test_chatml_goes_on_with_an_answer_that_has_begun() -> None:
    text = rendered(CHATML, Message("user", "Hi"), Message("assistant", "Hello"))

    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello"


def test_llama3() -> None:
    assert rendered(LLAMA3, Message("user", "Hi")) == (
        "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_mistral_shows_tools_and_system_with_the_last_question() -> None:
    messages = [Message("system", "S"), Message("user", "a"), Message("assistant", "b"), Message("user", "c")]

    text = rendered(MISTRAL, *messages, tools=[WEATHER])

    assert text.startswith("[INST] a[/INST] b</s>[AVAILABLE_TOOLS] [{")
    assert text.endswith("[/AVAILABLE_TOOLS][INST] S\n\nc[/INST]")


def test_mistral_with_a_call_and_its_result() -> None:
    text = rendered(MISTRAL, Message("user", "a"), CALL, Message("tool", 'say "hi"'))

    assert '[TOOL_CALLS] [{"name": "weather", "arguments": {"city":"Rome","days":2}}]</s>' in text
    assert text.endswith('[TOOL_RESULTS] {"content": "say \\"hi\\""}[/TOOL_RESULTS]')


def test_gemma_is_rendered_turn_by_turn() -> None:
    messages = [Message("system", "S"), Message("user", "a"), Message("assistant", "b"), Message("user", "c")]

    assert rendered(GEMMA, *messages) == (
        "<start_of_turn>user\nS a<end_of_turn>\n<start_of_turn>model\nb<end_of_turn>\n"
        "<start_of_turn>user\nc<end_of_turn>\n<start_of_turn>model\n"
    )


def test_gemma_goes_on_with_an_answer_that_has_begun() -> None:
    text = rendered(GEMMA, Message("user", "a"), Message("assistant", "b"))

    assert text == "<start_of_turn>user\na<end_of_turn>\n<start_of_turn>model\nb"


def test_command_r_goes_over_properties_and_arguments() -> None:
    text = rendered(COMMAND_R, Message("user", "Weather?"), CALL, tools=[WEATHER])

    assert "def weather(city: string, days: number | null, )\n    The weather of a city" in text
    assert text.endswith("<|user|>Weather?<|assistant|>(city=Rome)(days=2)<|chatbot|>")


def test_neighbours_of_one_role_are_one_message() -> None:
    text = rendered(LLAMA3, Message("user", "a"), Message("user", "b"), Message("tool", "c"), Message("tool", "d"))

    assert "\n\na\n\nb<|eot_id|>" in text
    assert text.count("tool<|end_header_id|>") == 2


def test_thinking_is_what_was_asked_for() -> None:
    template = "{{ .Messages }}{{ if .IsThinkSet }}{{ .Think }} {{ .ThinkLevel }}{{ else }}unset{{ end }}"

    said = [rendered(template, thinking=Thinking.asked(asked)) for asked in (None, True, False, "high")]

    assert said == ["[]unset", "[]true ", "[]false ", "[]true high"]


def test_fill_in() -> None:
    template = PromptTemplate.read("{{ if .Suffix }}<pre>{{ .Prompt }}<suf>{{ .Suffix }}<mid>{{ end }}")

    assert template.fill_in("def f(", "return 1") == "<pre>def f(<suf>return 1<mid>"
    assert template.shows("Suffix")
    assert not template.shows("Tools")


def test_a_template_without_a_place_for_the_answer_ends_with_it() -> None:
    assert rendered("Q: {{ .Prompt }} A:", Message("user", "a"), Message("assistant", " b")) == "Q: a A: b"


def test_a_thousand_messages_are_within_the_limits() -> None:
    messages = [Message("user" if place % 2 == 0 else "assistant", "x") for place in range(1001)]

    assert rendered(CHATML, *messages).endswith("<|im_start|>assistant\n")


def test_a_template_that_loops_is_an_error() -> None:
    with pytest.raises(ServeError, match="takes too many steps"):
        rendered("{{ range 1000000000 }}{{ end }}{{ .Prompt }}", Message("user", "a"))


def test_properties_that_are_no_schemas_do_no_harm() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"x": 3}, "required": None}}}

    assert "def f(x: any, )" in rendered(COMMAND_R, Message("user", "a"), tools=[tool])
