"""Tools: what is offered to the model, how a call is forced, and how calls are read out of plain text.

llama.cpp reads the calls of ``tool_choice: auto`` out of what a model writes by the model's own template.
It does not enforce ``required`` or one tool by name: such an answer is kept to a JSON schema of all calls
that are allowed, and turned into the call afterwards.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from bident.errors import ServeError, invalid_arg
from bident.text.answering.schema import check_schema
from bident.text.answering.thinking import certain_length
from bident.wire.text import TextRequest, ToolCall

_MOST_TOOLS = 1024
_NAME = re.compile(r"[\w.:/-]{1,256}")
_MARKS = ("<tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "<function_call>", "Action:", "```json")
"""How the models of common templates announce a call."""
_LEFT = re.compile(r"</?(?:tool_call|function_call|\|python_tag\||\|eom_id\|)>|\[/?TOOL_CALLS\]|^Action:|```(?:json)?")
_OPENING = re.compile(r"[{\[]")
_BRACKET_OR_STRING = re.compile(r'"(?:\\.|[^"\\])*"|[{}\[\]]')
_NEVER = -1
_MOST_DOCUMENTS = 64


def offered(request: TextRequest) -> list[dict[str, Any]]:
    """The request's tools, as they are shown to the model: none with ``tool_choice: none``.

    Raises INVALID_ARG for a tool that is none, or a choice of one that is not there.
    """
    if len(request.tools) > _MOST_TOOLS:
        raise invalid_arg(f"tools has {len(request.tools)} entries, {_MOST_TOOLS} are the most")
    tools = [_tool(tool, place) for place, tool in enumerate(request.tools)]
    choice = request.tool_choice
    names = [tool["function"]["name"] for tool in tools]
    if choice.name and choice.name not in names:
        raise invalid_arg(f"tool_choice asks for {choice.name[:80]!r}, tools has {', '.join(names)[:500] or 'none'}")
    if choice.mode == "required" and not tools:
        raise invalid_arg("tool_choice is 'required', and tools is empty")
    return [] if choice.mode == "none" else tools


def is_forced(request: TextRequest) -> bool:
    """Whether the answer must be a call."""
    return bool(request.tool_choice.name) or request.tool_choice.mode == "required"


def call_schema(tools: Sequence[Mapping[str, Any]], name: str = "") -> dict[str, Any]:
    """What a call of one of ``tools``, or of the one called ``name``, looks like as JSON.

    A tool's schema may refer to its own ``$defs``; they move to the root under names of their own.
    """
    calls: list[dict[str, Any]] = []
    definitions: dict[str, Any] = {}
    for place, tool in enumerate(tools):
        function = tool["function"]
        if name and function["name"] != name:
            continue
        arguments = _moved(function["parameters"], f"tool{place}")
        # As OpenAI's strict mode has it: a model that may invent properties does not come to an end.
        arguments.setdefault("additionalProperties", False)
        definitions[f"tool{place}"] = arguments
        properties = {"name": {"const": function["name"]}, "arguments": {"$ref": f"#/$defs/tool{place}"}}
        required = ["name", "arguments"]
        calls.append({"type": "object", "properties": properties, "required": required, "additionalProperties": False})
    return {**(calls[0] if len(calls) == 1 else {"anyOf": calls}), "$defs": definitions}


def read_call(text: str, tools: Sequence[Mapping[str, Any]]) -> ToolCall | None:
    """The call that ``text`` is as JSON; None if it is none, or not of one of ``tools``."""
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    calls = _calls(document, {tool["function"]["name"] for tool in tools})
    return calls[0] if len(calls) == 1 else None


def read_arguments(text: str) -> dict[str, Any] | None:
    """The arguments that ``text`` is as JSON; no text is no arguments. None if it is no JSON object."""
    try:
        arguments = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return None
    return arguments if isinstance(arguments, dict) else None


def new_id() -> str:
    """A call's id, as Ollama's look."""
    return f"call_{secrets.token_hex(4)}"


class TextCalls:
    """Reads calls out of the pieces of an answer whose form nobody else knows.

    What comes before the first mark of a call is passed on; from there on everything waits for the end.
    """

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        self._names = {tool["function"]["name"] for tool in tools}
        self._held = ""
        self._waits = False
        self._begun = False

    def feed(self, piece: str) -> str:
        """What is certainly no call after ``piece``."""
        self._held += piece
        if self._waits:
            return ""
        place, self._waits = self._beginning()
        passed, self._held = self._held[:place], self._held[place:]
        self._begun = self._begun or bool(passed.strip())
        return passed

    def _beginning(self) -> tuple[int, bool]:
        """Where a call may begin in what is held, and whether one does."""
        start = self._held.lstrip()
        if not self._begun and start[:1] in ("", "{", "["):
            return 0, bool(start)
        places = [place for mark in _MARKS if (place := self._held.find(mark)) >= 0]
        if places:
            return min(places), True
        return min(certain_length(self._held, mark) for mark in _MARKS), False

    def end(self) -> tuple[str, list[ToolCall]]:
        """The calls in what has waited; if there are none, it was text."""
        held, self._held = self._held, ""
        calls: list[ToolCall] = []
        for document in _documents(_LEFT.sub(" ", held)):
            calls.extend(_calls(document, self._names))
        return ("", calls) if calls else (held, [])


def _tool(tool: Any, place: int) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping):
        raise invalid_arg(f"tools[{place}] has no function: " + '{"type": "function", "function": {"name", ...}}')
    name, parameters = function.get("name"), function.get("parameters")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise invalid_arg(f"tools[{place}] has no name of letters, digits, '_', '-' and '.'")
    if not isinstance(function.get("description") or "", str):
        raise invalid_arg(f"tools[{place}] has a description that is no text")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise invalid_arg(f"tools[{place}] has parameters that are no JSON schema")
    _check_parameters(parameters or {}, place)
    described = {"description": function.get("description") or ""} if function.get("description") else {}
    schema = {"type": "object", "properties": {}, **(parameters or {})}
    return {"type": "function", "function": {"name": name, **described, "parameters": schema}}


def _check_parameters(parameters: Mapping[str, Any], place: int) -> None:
    try:
        check_schema(parameters)
        orjson.dumps(parameters)
    except ServeError as error:
        raise invalid_arg(f"tools[{place}] has parameters that are no JSON schema: {error.message}") from None
    except orjson.JSONEncodeError:
        raise invalid_arg(f"tools[{place}] has parameters that are nested too deeply") from None


def _moved(part: Any, name: str) -> Any:
    """``part`` of a schema whose root has become ``#/$defs/name``."""
    if isinstance(part, list):
        return [_moved(item, name) for item in part]
    if not isinstance(part, Mapping):
        return part
    moved = {key: _moved(value, name) for key, value in part.items()}
    reference = part.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        moved["$ref"] = f"#/$defs/{name}{reference[1:]}"
    return moved


def _documents(text: str) -> list[Any]:
    """The JSON objects and lists in ``text``, whatever stands between them."""
    documents: list[Any] = []
    ends: dict[int, int] = {}
    place = 0
    # Counted, because each bracket in what seemed to be a string costs another look at the whole rest.
    for _ in range(_MOST_DOCUMENTS):
        found = _OPENING.search(text, place)
        if found is None:
            break
        start, place = found.span()
        if start not in ends:
            ends = _ends(text, start)
        if ends[start] == _NEVER:
            continue
        try:
            documents.append(orjson.loads(text[start : ends[start]]))
        except orjson.JSONDecodeError:
            continue
        place = ends[start]
    return documents


def _ends(text: str, start: int) -> dict[int, int]:
    """Where the bracket at ``start``, and each that is opened within, is closed again, or ``_NEVER``."""
    ends: dict[int, int] = {}
    opened: list[int] = []
    for found in _BRACKET_OR_STRING.finditer(text, start):
        if found[0] in "{[":
            opened.append(found.start())
            ends[found.start()] = _NEVER
        elif found[0] in "}]":
            ends[opened.pop()] = found.end()
            if not opened:
                break
    return ends


def _calls(document: Any, names: set[str]) -> list[ToolCall]:
    """The calls that ``document`` says; nothing unless all of it are calls of tools that there are."""
    calls: list[ToolCall] = []
    for item in document if isinstance(document, list) else [document]:
        function = item.get("function", item) if isinstance(item, dict) else None
        if isinstance(function, str):
            function = {**item, "name": function}
        if not isinstance(function, dict):
            return []
        name = function.get("name", function.get("tool_name"))
        arguments = function.get("arguments", function.get("parameters", {}))
        arguments = read_arguments(arguments) if isinstance(arguments, str) else arguments
        if not isinstance(name, str) or name not in names or not isinstance(arguments, dict):
            return []
        calls.append(ToolCall(new_id(), name, arguments))
    return calls
