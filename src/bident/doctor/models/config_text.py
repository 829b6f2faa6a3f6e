"""Where things stand in the text of a ``config.pbtxt``, so that it can be changed and keep its comments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""(?P<skip>\s+|\#[^\n]*)|(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(?P<mark>[{}\[\]<>:,;])"""
    r"""|(?P<word>[^\s{}\[\]<>:,;"'\#]+)""",
    re.DOTALL,
)
_CLOSING = {"{": "}", "<": ">"}
_REST_OF_LINE = re.compile(r"[,;]?[ \t]*(#[^\n]*)?(?=\n|$)")


@dataclass(frozen=True)
class Block:
    """A message between its braces; the whole text is one too. Positions are offsets into the text."""

    start: int
    end: int
    entries: list[Entry] = field(default_factory=list)


@dataclass(frozen=True)
class Entry:
    """One field: from its name to the end of its value, and the messages in it."""

    name: str
    start: int
    end: int
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True)
class _Token:
    text: str
    start: int
    end: int


def read_block(text: str) -> Block:
    """The layout of a configuration that protobuf can parse. Raises ValueError for one it does not understand."""
    return _Reader(text).block("", len(text), 0)


def find(root: Block, where: tuple[tuple[str, int], ...]) -> Block | None:
    """The message that ``where`` leads to: the name of a field, and which of its messages, counted over all of them."""
    block = root
    for name, index in where:
        inner = [inner for entry in block.entries if entry.name == name for inner in entry.blocks]
        if index >= len(inner):
            return None
        block = inner[index]
    return block


def put(text: str, where: tuple[tuple[str, int], ...], name: str, value: str, *, replace: bool) -> str:
    """``text`` with ``name: value`` in the message at ``where``, in the place of what has that name if ``replace``.

    An empty ``value`` takes the field away. Raises ValueError where there is no such message.
    """
    block = find(read_block(text), where)
    if block is None:
        raise ValueError(f"no message {where}")
    line = f"{name} {value}" if value.startswith(("{", "[")) and "{" in value else f"{name}: {value}"
    old = [entry for entry in block.entries if entry.name == name] if replace else []
    for entry in reversed(old[1:] if value else old):
        text = text[: entry.start] + text[_past_separator(text, entry.end) :]
    if old and value:
        return text[: old[0].start] + line + text[old[0].end :]
    return _inserted(text, block, line) if value else text


def _past_separator(text: str, end: int) -> int:
    found = re.compile(r"[ \t]*[,;]?").match(text, end)
    return found.end() if found else end


def _inserted(text: str, block: Block, line: str) -> str:
    if not block.entries:
        return f"{text[: block.end]} {line} {text[block.end :]}" if block.end < len(text) else f"{text}{line}\n"
    last = block.entries[-1]
    start_of_line = text.rfind("\n", 0, last.start) + 1
    indent = text[start_of_line : last.start]
    rest = _REST_OF_LINE.match(text, last.end)
    if indent.strip() or rest is None or rest.end() > block.end:
        return f"{text[: last.end]} {line}{text[last.end :]}"
    end = rest.end()
    return f"{text[:end]}\n{indent}{line}{text[end:]}"


class _Reader:
    """Goes through the tokens once. Assumes what protobuf's own parser has accepted."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0

    def _peek(self) -> str:
        return self._tokens[self._at].text if self._at < len(self._tokens) else ""

    def _next(self) -> _Token:
        if self._at >= len(self._tokens):
            raise ValueError("the text ends within a field")
        self._at += 1
        return self._tokens[self._at - 1]

    def block(self, closing: str, end: int, start: int) -> Block:
        """The fields up to ``closing``, or up to the end of the text where that is empty."""
        entries: list[Entry] = []
        while self._at < len(self._tokens) and self._peek() != closing:
            if self._peek() in (",", ";"):
                self._next()
            else:
                entries.append(self._entry())
        if closing:
            end = self._next().start
        return Block(start, end, entries)

    def _entry(self) -> Entry:
        name = self._next()
        if self._peek() == ":":
            self._next()
        blocks: list[Block] = []
        if self._peek() == "[":
            self._next()
            while self._peek() != "]":
                if self._peek() in _CLOSING:
                    blocks.append(self._message())
                else:
                    self._next()
            end = self._next().end
        elif self._peek() in _CLOSING:
            blocks.append(self._message())
            end = blocks[0].end + 1
        else:
            end = self._scalar()
        return Entry(name.text, name.start, end, tuple(blocks))

    def _message(self) -> Block:
        opening = self._next()
        return self.block(_CLOSING[opening.text], 0, opening.end)

    def _scalar(self) -> int:
        """One value; strings that follow one another are one."""
        last = self._next()
        while last.text[0] in "\"'" and self._peek()[:1] in ('"', "'"):
            last = self._next()
        if last.text == "-":
            last = self._next()
        return last.end


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(f"no token at {at}")
        if found.lastgroup != "skip":
            yield _Token(found.group(), at, found.end())
        at = found.end()


def comments(text: str) -> Iterator[tuple[int, int]]:
    """Where the comments of ``text`` start and end; stops at what is no token."""
    at = 0
    while found := _TOKEN.match(text, at):
        if found.lastgroup == "skip" and found.group().startswith("#"):
            yield at, found.end()
        at = found.end()
