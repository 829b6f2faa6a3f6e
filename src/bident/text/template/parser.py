"""A template's words to what they mean: the tree that ``evaluation`` carries out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from bident.errors import ServeError
from bident.text.template.functions import FUNCTIONS
from bident.text.template.lexer import Action, Word, lex, wrong
from bident.text.template.tree import (
    Body,
    Branch,
    Call,
    Constant,
    Dot,
    Field,
    Function,
    Jump,
    Node,
    Operand,
    Output,
    Pipeline,
    Template,
    Text,
    Variable,
)

_BRANCHES = ("if", "with", "range")
_DEEPEST = 64
_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "nil": None}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_CLOSING = ("end", "else")


@lru_cache(maxsize=128)
def parse(template: str) -> Template:
    """``template`` read once. Raises INVALID_ARG with the line for what is not understood."""
    return _Parser(template).template()


class _Parser:
    def __init__(self, template: str) -> None:
        self._parts: Iterator[str | Action] = lex(template)
        self._definitions: dict[str, Body] = {}
        self._names: set[str] = set()
        self._line = 1
        self._depth = 0
        self._loops = 0

    def template(self) -> Template:
        body, closing = self._body()
        if closing is not None:
            raise self._wrong(f"unexpected {{{{ {closing.words[0].text} }}}}: nothing is open")
        return Template(body, self._definitions, frozenset(self._names))

    def _wrong(self, problem: str) -> ServeError:
        return wrong(self._line, problem)

    def _body(self) -> tuple[Body, Action | None]:
        """The nodes up to an ``end`` or ``else``, which is given too, or to the end of the template."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._wrong(f"more than {_DEEPEST} levels of nesting")
        nodes: list[Node] = []
        for part in self._parts:
            if isinstance(part, str):
                nodes.extend([Text(part)] if part else [])
                continue
            self._line = part.line
            if part.words and part.words[0].text in _CLOSING and part.words[0].kind == "name":
                self._depth -= 1
                return tuple(nodes), part
            node = self._action(part.words)
            nodes.extend([node] if node else [])
        self._depth -= 1
        return tuple(nodes), None

    def _action(self, words: tuple[Word, ...]) -> Node | None:
        if not words:
            raise self._wrong("an action is empty")
        keyword, rest = words[0].text if words[0].kind == "name" else "", words[1:]
        if keyword in _BRANCHES:
            return self._branch(keyword, rest)
        if keyword in ("break", "continue"):
            if rest or not self._loops:
                raise self._wrong(f"{{{{ {keyword} }}}} stands alone, inside a range")
            return Jump(keyword)
        if keyword == "define":
            self._definitions[self._name(rest[:1])] = self._closed()
            return None
        if keyword == "block":
            self._definitions[self._name(rest[:1])] = self._closed()
        if keyword in ("template", "block"):
            return Call(self._name(rest[:1]), self._pipeline(rest[1:]) if rest[1:] else None)
        return Output(self._pipeline(words))

    def _branch(self, keyword: str, words: tuple[Word, ...]) -> Branch:
        pipeline = self._pipeline(words, most=2 if keyword == "range" else 1)
        self._loops += keyword == "range"
        body, closing = self._body()
        self._loops -= keyword == "range"
        otherwise: Body = ()
        if closing is not None and closing.words[0].text == "else":
            if len(closing.words) > 1:
                return Branch(keyword, pipeline, body, (self._chained(keyword, closing.words[1:]),))
            otherwise, closing = self._body()
        self._check_end(closing)
        return Branch(keyword, pipeline, body, otherwise)

    def _chained(self, keyword: str, words: tuple[Word, ...]) -> Branch:
        """``{{ else if ... }}`` and ``{{ else with ... }}``: one ``end`` closes them all."""
        if words[0].text not in ("if", "with") or keyword == "range":
            raise self._wrong(f"unexpected {words[0].text!r} after else")
        self._depth += 1
        branch = self._branch(words[0].text, words[1:])
        self._depth -= 1
        return branch

    def _closed(self) -> Body:
        loops, self._loops = self._loops, 0
        body, closing = self._body()
        self._loops = loops
        self._check_end(closing)
        return body

    def _check_end(self, closing: Action | None) -> None:
        if closing is None:
            raise self._wrong("{{ end }} is missing")
        if closing.words[0].text != "end" or len(closing.words) > 1:
            raise self._wrong("unexpected words in {{ " + " ".join(word.text for word in closing.words) + " }}")

    def _name(self, words: tuple[Word, ...]) -> str:
        if not words or words[0].kind not in ("string", "raw"):
            raise self._wrong("a template's name is a string")
        return str(self._constant(words[0]))

    def _pipeline(self, words: tuple[Word, ...], most: int = 1) -> Pipeline:
        pipeline, rest = self._sequence(words, most)
        if rest:
            raise self._wrong(f"unexpected {rest[0].text!r}")
        return pipeline

    def _sequence(self, words: tuple[Word, ...], most: int = 1) -> tuple[Pipeline, tuple[Word, ...]]:
        """A pipeline, and the words from the one on that cannot belong to it."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._wrong(f"more than {_DEEPEST} levels of nesting")
        variables, declares, words = self._targets(words, most)
        commands: list[tuple[Operand, ...]] = []
        while True:
            command: list[Operand] = []
            while words and words[0].text not in ("|", ")"):
                operand, words = self._operand(words)
                command.append(operand)
            if not command:
                raise self._wrong("a value is missing")
            commands.append(tuple(command))
            if not words or words[0].text != "|":
                break
            words = words[1:]
        self._depth -= 1
        return Pipeline(tuple(commands), variables, declares), words

    def _targets(self, words: tuple[Word, ...], most: int) -> tuple[tuple[str, ...], bool, tuple[Word, ...]]:
        """The variables before ``:=`` or ``=``, whether they are new, and the words after it."""
        for count in range(1, most + 1):
            sign = words[2 * count - 1 : 2 * count]
            if sign and (sign[0].kind == "declare" or sign[0].text == "="):
                targets = words[: 2 * count - 1]
                if any(word.kind != "variable" for word in targets[::2]) or any(w.text != "," for w in targets[1::2]):
                    raise self._wrong(f"only variables may stand before {sign[0].text}")
                return tuple(word.text for word in targets[::2]), sign[0].kind == "declare", words[2 * count :]
        return (), True, words

    def _operand(self, words: tuple[Word, ...]) -> tuple[Operand, tuple[Word, ...]]:
        """The first operand of ``words`` with the fields asked of it, and the words after it."""
        word, words = words[0], words[1:]
        operand: Operand
        if word.text == "(":
            operand, words = self._sequence(words)
            if not words:
                raise self._wrong("')' is missing")
            words = words[1:]
        elif word.kind == "field":
            self._names.add(word.text[1:])
            operand = Field(Dot(), word.text[1:])
        elif word.kind == "dot":
            operand = Dot()
        elif word.kind == "variable":
            operand = Variable(word.text)
        elif word.kind == "name" and word.text not in _CONSTANTS:
            if word.text not in FUNCTIONS:
                raise self._wrong(f'function "{word.text}" not defined; there are {", ".join(sorted(FUNCTIONS))}')
            operand = Function(word.text)
        else:
            operand = Constant(self._constant(word))
        while words and words[0].kind == "field" and words[0].glued:
            self._names.add(words[0].text[1:])
            operand, words = Field(operand, words[0].text[1:]), words[1:]
        return operand, words

    def _constant(self, word: Word) -> Any:
        if word.kind == "raw":
            return word.text[1:-1].replace("\r", "")
        if word.kind == "string":
            return self._unescaped(word.text[1:-1])
        if word.kind == "character":
            character = self._unescaped(word.text[1:-1])
            if len(character) == 1:
                return ord(character)
        if word.kind == "name":
            return _CONSTANTS[word.text]
        if word.kind == "number":
            is_whole = re.fullmatch(r"[+-]?(\d{1,19}|0[xX][0-9a-fA-F]{1,16})", word.text)
            return int(word.text, 16 if "x" in word.text.lower() else 10) if is_whole else float(word.text)
        raise self._wrong(f"unexpected {word.text!r}")

    def _unescaped(self, text: str) -> str:
        def character(found: re.Match[str]) -> str:
            code = found[1] or found[2] or found[3]
            number = int(code, 16) if code else int(found[4], 8) if found[4] else -1
            if number > 0x10FFFF or 0xD800 <= number < 0xE000:
                raise self._wrong(f"{found[0]} is no character")
            return chr(number) if number >= 0 else _ESCAPED.get(found[5], found[5])

        return _ESCAPE.sub(character, text)
