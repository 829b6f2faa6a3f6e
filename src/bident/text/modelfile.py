"""Modelfiles: what a text model is made of (modelfile.md of Ollama).

Commands are matched in either case and come in any order, ``#`` starts a comment line, and a value
may be quoted or, over several lines, within three double quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from bident.errors import MalformedError
from bident.text import parameters
from bident.wire.text import Message

_COMMANDS = ("from", "parameter", "template", "system", "adapter", "license", "message", "requires", "draft",
             "renderer", "parser")  # fmt: skip
_ROLES = ("system", "user", "assistant")
_QUOTES = '"""'
_LARGEST = 4 << 20
_COMMAND = re.compile(r"([A-Za-z]+)(?:[ \t]+|$)")
_PLAIN_VALUE = re.compile(r'[^\s"#][^\n"]*[^\s"]|[^\s"#]')


@dataclass
class Modelfile:
    """What a Modelfile says. ``base`` (FROM) is a model's name, or a file."""

    base: str
    also: list[str] = field(default_factory=list)
    """Further FROM lines: files that belong to the base, such as a vision model's projector."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """Typed; ``stop`` is a list."""
    template: str | None = None
    system: str = ""
    adapters: list[str] = field(default_factory=list)
    licenses: list[str] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    requires: str = ""
    draft: str = ""
    renderer: str = ""
    parser: str = ""


def parse_modelfile(text: str) -> Modelfile:
    """Read a Modelfile. Raises MalformedError with the number of the line, INVALID_ARG for a parameter."""
    if len(text) > _LARGEST:
        raise MalformedError(f"the Modelfile has {len(text)} characters, {_LARGEST} are the most")
    found = Modelfile(base="")
    for line, command, value in _commands(text.removeprefix("\ufeff").replace("\r\n", "\n")):
        if command not in _COMMANDS:
            names = ", ".join(f'"{name}"' for name in _COMMANDS)
            raise MalformedError(f"line {line}: command must be one of {names}, not '{command[:40]}'")
        if not value and command not in ("system", "template", "license"):
            raise MalformedError(f"line {line}: {command.upper()} has no value")
        _apply(found, command, value, line)
    if not found.base:
        raise MalformedError("no FROM line: a Modelfile names the model, or the .gguf file, that it starts from")
    return found


def _apply(found: Modelfile, command: str, value: str, line: int) -> None:
    """Take over one command; of those that are no lists the last one counts."""
    if command == "parameter":
        _apply_parameter(found, value, line)
    elif command == "message":
        role, content = _first_word(value)
        if role.lower() not in _ROLES:
            raise MalformedError(f"line {line}: message role must be one of {', '.join(_ROLES)}, not '{role[:40]}'")
        found.messages.append(Message(role.lower(), _unquoted(content, line)))
    elif command in ("adapter", "license"):
        (found.adapters if command == "adapter" else found.licenses).append(_unquoted(value, line))
    elif command == "from":
        if found.base:
            found.also.append(_unquoted(value, line))
        else:
            found.base = _unquoted(value, line)
    else:
        setattr(found, command, _unquoted(value, line))


def _apply_parameter(found: Modelfile, value: str, line: int) -> None:
    name, text = _first_word(value)
    if not text:
        raise MalformedError(f"line {line}: PARAMETER {name[:40]} has no value")
    typed = parameters.from_text(name.lower(), _unquoted(text, line))
    if name.lower() in parameters.LISTS:
        found.parameters.setdefault(name.lower(), []).append(typed)
    elif name.lower() not in parameters.OBSOLETE:
        found.parameters[name.lower()] = typed


def _commands(text: str) -> Iterator[tuple[int, str, str]]:
    """Every command: the number of its line, its name in lower case, and its value, quotes and all."""
    lines = iter(enumerate(text.split("\n"), 1))
    for number, line in lines:
        start = line.strip()
        if not start or start.startswith("#"):
            continue
        match = _COMMAND.match(start)
        if match is None:
            raise MalformedError(f"line {number}: '{start[:40]}' is no command")
        if start.count(_QUOTES) % 2:  # its value goes on until the line that closes them
            parts = [line.lstrip()[match.end() :]]
            for _, following in lines:
                parts.append(following)
                if _QUOTES in following:
                    break
            else:
                raise MalformedError(f"line {number}: the {_QUOTES} is never closed")
            yield number, match[1].lower(), "\n".join(parts).strip()
        else:
            yield number, match[1].lower(), start[match.end() :].strip()


def _first_word(value: str) -> tuple[str, str]:
    word, *rest = value.split(None, 1)
    return word, rest[0] if rest else ""


def _unquoted(value: str, line: int) -> str:
    """``value`` without its quotes. Raises MalformedError where they do not enclose all of it."""
    if value.startswith(_QUOTES):
        if len(value) < 6 or not value.endswith(_QUOTES):
            raise MalformedError(f"line {line}: a value that starts with {_QUOTES} must end with {_QUOTES}")
        return value[3:-3]
    if value.startswith('"'):
        if len(value) < 2 or not value.endswith('"'):
            raise MalformedError(f"line {line}: the quote is never closed")
        return value[1:-1]
    return value


def write_modelfile(file: Modelfile, comments: tuple[str, ...] = ()) -> str:
    """``file`` as text that reads back as the same, but for texts with three quotes in them, which none can say."""
    lines = [f"# {comment}" for comment in comments]
    lines += [f"FROM {_quoted(source)}" for source in (file.base, *file.also)]
    lines += [f"ADAPTER {_quoted(adapter)}" for adapter in file.adapters]
    if file.template is not None:
        lines.append(f"TEMPLATE {_enclosed(file.template)}")
    if file.system:
        lines.append(f"SYSTEM {_enclosed(file.system)}")
    for name, value in sorted(file.parameters.items()):
        lines += [f"PARAMETER {name} {_shown(each)}" for each in (value if isinstance(value, list) else [value])]
    for command in ("renderer", "parser", "requires", "draft"):
        if value := getattr(file, command):
            lines.append(f"{command.upper()} {_quoted(value)}")
    lines += [f"MESSAGE {message.role} {_enclosed(message.content)}" for message in file.messages]
    lines += [f"LICENSE {_enclosed(text)}" for text in file.licenses]
    return "\n".join(lines) + "\n"


def shown_parameters(values: dict[str, Any]) -> str:
    """The ``parameters`` text of ``/api/show``: one a line, the name padded to 30."""
    rows = []
    for name, value in sorted(values.items()):
        rows += [f"{name:<30} {_shown(each)}" for each in (value if isinstance(value, list) else [value])]
    return "\n".join(rows)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return _enclosed(value) if isinstance(value, str) else str(value)


def _quoted(value: str) -> str:
    """As it is where that reads back as the same, otherwise within quotes."""
    return value if _PLAIN_VALUE.fullmatch(value) else _enclosed(value)


def _enclosed(value: str) -> str:
    return f"{_QUOTES}{value}{_QUOTES}" if '"' in value or "\n" in value else f'"{value}"'
