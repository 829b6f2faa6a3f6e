"""A conversation, or a prompt, to the text the model is given: what ``TEMPLATE`` of a Modelfile is for.

Templates come in two kinds (Ollama's docs/template.md): those that go over ``.Messages`` themselves, and
those that write one turn of ``.System``, ``.Prompt`` and ``.Response``, which are carried out once for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bident.text.template.evaluation import Limits, render
from bident.text.template.functions import typescript
from bident.text.template.parser import parse
from bident.text.template.tree import Template
from bident.text.template.values import Opening, Struct
from bident.wire.text import Message, ToolCall

_STEPS_PER_MESSAGE = 2000
_FUNCTION_FIELDS = ("Name", "Description")


@dataclass(frozen=True)
class Thinking:
    """Whether the model is to think: ``level`` is low, medium or high where one was asked for."""

    is_set: bool = False
    on: bool = False
    level: str = ""

    @classmethod
    def asked(cls, think: bool | str | None) -> Thinking:
        """What ``think`` of a request says."""
        return cls(think is not None, bool(think), think if isinstance(think, str) else "")


@dataclass(frozen=True)
class PromptTemplate:
    """A TEMPLATE that can be rendered."""

    tree: Template

    @classmethod
    def read(cls, text: str) -> PromptTemplate:
        """The template that ``text`` is. Raises INVALID_ARG with the line for what is not understood."""
        return cls(parse(text))

    def shows(self, name: str) -> bool:
        """Whether it mentions the field ``name``: a template that never does cannot show it to the model."""
        return name in self.tree.names

    def conversation(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), thinking: Thinking | None = None
    ) -> str:
        """The prompt for the answer that follows ``messages``, or goes on with the last if that is an assistant's."""
        system = "\n\n".join(message.content for message in messages if message.role == "system")
        merged = _merged(messages)
        limits = Limits(steps=Limits.steps + _STEPS_PER_MESSAGE * (len(merged) + len(tools)))
        settings = {"Tools": _tools(tools), **_thinking(thinking or Thinking())}
        if self.shows("Messages"):
            data: dict[str, Any] = {
                "System": system,
                "Messages": [_message(message) for message in merged],
                "Response": Opening(""),
            }
            return render(self.tree, data | settings, limits)
        return self._turns(merged, settings, limits)

    def fill_in(self, prompt: str, suffix: str) -> str:
        """The prompt for what goes between ``prompt`` and ``suffix``."""
        data = {"System": "", "Prompt": prompt, "Suffix": suffix, "Response": Opening("")}
        return render(self.tree, data | _thinking(Thinking()))

    def _turns(self, messages: Sequence[Message], settings: dict[str, Any], limits: Limits) -> str:
        texts: list[str] = []
        system = prompt = response = ""

        def turn(answer: str) -> str:
            data: dict[str, Any] = {"System": system, "Prompt": prompt, "Response": answer, "Suffix": ""}
            return render(self.tree, settings | data, limits)

        for message in messages:
            if (message.role == "system" and (prompt or response)) or (message.role != "assistant" and response):
                texts.append(turn(response))
                system = prompt = response = ""
            if message.role == "system":
                system = message.content
            elif message.role == "assistant":
                response = message.content
            else:
                prompt = message.content
        last = turn(Opening(response))
        return "".join([*texts, last if self.shows("Response") else last + response])


def _merged(messages: Sequence[Message]) -> list[Message]:
    """Neighbours of the same role as one: most models know strictly alternating turns only."""
    merged: list[Message] = []
    for message in messages:
        last = merged[-1] if merged else None
        is_plain = message.role != "tool" and not message.tool_calls and not message.thinking
        if last is not None and is_plain and last.role == message.role and not last.tool_calls:
            merged[-1] = replace(last, content=f"{last.content}\n\n{message.content}")
        else:
            merged.append(message)
    return merged


def _thinking(thinking: Thinking) -> dict[str, Any]:
    return {"Think": thinking.on, "ThinkLevel": thinking.level, "IsThinkSet": thinking.is_set}


def _message(message: Message) -> Struct:
    calls = [_tool_call(place, call) for place, call in enumerate(message.tool_calls)]
    fields = {
        "Role": message.role,
        "Content": message.content,
        "Thinking": message.thinking,
        "Images": [],
        "ToolCalls": calls,
        "ToolName": message.tool_name,
        "ToolCallID": message.tool_call_id,
    }
    return Struct("Message", fields, {"role": message.role, "content": message.content})


def _tool_call(place: int, call: ToolCall) -> Struct:
    arguments = Struct("Arguments", call.arguments, dict(call.arguments), is_map=True)
    document = {"name": call.name, "arguments": dict(call.arguments)}
    function = Struct("Function", {"Index": place, "Name": call.name, "Arguments": arguments}, document)
    return Struct("ToolCall", {"ID": call.id, "Function": function}, {"function": document})


def _tools(tools: Sequence[Mapping[str, Any]]) -> list[Struct]:
    return [_tool(tool) for tool in tools]


def _tool(tool: Mapping[str, Any]) -> Struct:
    function = tool.get("function")
    document: Mapping[str, Any] = function if isinstance(function, Mapping) else {}
    fields = {name: document.get(name.lower()) or "" for name in _FUNCTION_FIELDS}
    described = Struct("Function", fields | {"Parameters": _schema(document.get("parameters"))}, document)
    return Struct("Tool", {"Type": tool.get("type", "function"), "Items": None, "Function": described}, tool)


def _schema(schema: Any) -> Struct:
    """A tool's parameters, whose properties have fields of their own."""
    document: Mapping[str, Any] = schema if isinstance(schema, Mapping) else {}
    properties = document.get("properties")
    fields = {
        "Type": document.get("type") or "",
        "Items": document.get("items"),
        "Required": document.get("required") or [],
        "Defs": document.get("$defs"),
        "Properties": {
            name: _property(value) for name, value in (properties.items() if isinstance(properties, Mapping) else ())
        },
    }
    return Struct("Parameters", fields, document)


def _property(schema: Any) -> Struct:
    document: Mapping[str, Any] = schema if isinstance(schema, Mapping) else {}
    fields = {
        "Type": document.get("type") or "",
        "AnyOf": document.get("anyOf") or [],
        "Items": document.get("items"),
        "Description": document.get("description") or "",
        "Enum": document.get("enum") or [],
        "ToTypeScriptType": typescript(document),
    }
    return Struct("Property", fields, document)
