"""Carries out a template, within limits: one that loops or swells is an error, not the end of the server."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bident.errors import ServeError, invalid_arg
from bident.text.template.functions import FUNCTIONS
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
from bident.text.template.values import Opening, Struct, field_of, is_true, kind_of, written

_SIGNATURES = {name: inspect.signature(function) for name, function in FUNCTIONS.items()}
_DEEPEST_CALL = 32


@dataclass(frozen=True)
class Limits:
    """How much one rendering may take: ``steps`` (nodes and operands) and ``characters``, written or in one value."""

    steps: int = 200_000
    characters: int = 16 << 20


_WRITTEN = "written"
"""How a body ends once all is written that goes before the answer; it may also end with ``break`` or ``continue``."""


def render(template: Template, data: Mapping[str, Any], limits: Limits | None = None) -> str:
    """What ``template`` makes of ``data``.

    Raises INVALID_ARG for a value that is asked for what it does not have, and for a rendering
    that exceeds ``limits``.
    """
    evaluation = _Evaluation(template, data, limits or Limits())
    try:
        evaluation.body(template.body, data)
    except RecursionError:
        raise _too_much("its values or calls are nested too deeply") from None
    return "".join(evaluation.parts)


class _Evaluation:
    def __init__(self, template: Template, data: Mapping[str, Any], limits: Limits) -> None:
        self.parts: list[str] = []
        self._definitions = template.definitions
        self._variables: list[tuple[str, Any]] = [("$", data)]
        self._steps = limits.steps
        self._most = self._room = limits.characters
        self._calls = 0

    def body(self, nodes: Body, dot: Any) -> str:
        """Write ``nodes``; variables declared among them end with them. Returns what ended them early, or ``""``."""
        known = len(self._variables)
        ending = ""
        for node in nodes:
            self._step()
            ending = self._node(node, dot)
            if ending:
                break
        del self._variables[known:]
        return ending

    def _node(self, node: Node, dot: Any) -> str:
        match node:
            case Text(text):
                self._write(text)
            case Output(pipeline):
                return self._output(pipeline, dot)
            case Branch(keyword="range"):
                return self._range(node, dot)
            case Branch():
                return self._choose(node, dot)
            case Call(name, argument):
                return self._call(name, None if argument is None else self._pipeline(argument, dot))
            case Jump(keyword):
                return keyword
        return ""

    def _step(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise _too_much("it takes too many steps; a loop in it has no end")

    def _write(self, text: str) -> None:
        self._room -= len(text)
        if self._room < 0:
            raise _too_much(f"it writes more than {self._most} characters")
        self.parts.append(text)

    def _output(self, pipeline: Pipeline, dot: Any) -> str:
        value = self._pipeline(pipeline, dot)
        if pipeline.variables:
            self._bind(pipeline.variables[0], value, declares=pipeline.declares)
            return ""
        self._write(written(value))
        return _WRITTEN if isinstance(value, Opening) else ""

    def _bind(self, name: str, value: Any, *, declares: bool) -> None:
        if declares:
            self._variables.append((name, value))
            return
        for place in reversed(range(len(self._variables))):
            if self._variables[place][0] == name:
                self._variables[place] = (name, value)
                return
        raise invalid_arg(f"template: undefined variable {name}")

    def _choose(self, node: Branch, dot: Any) -> str:
        known = len(self._variables)
        value = self._pipeline(node.pipeline, dot)
        if node.pipeline.variables:
            self._bind(node.pipeline.variables[0], value, declares=node.pipeline.declares)
        if is_true(value):
            ending = self.body(node.body, value if node.keyword == "with" else dot)
        else:
            ending = self.body(node.otherwise, dot)
        del self._variables[known:]
        return ending

    def _range(self, node: Branch, dot: Any) -> str:
        value = self._pipeline(node.pipeline, dot)
        known = len(self._variables)
        names, declares = node.pipeline.variables, node.pipeline.declares
        is_empty = True
        for key, item in _items(value):
            is_empty = False
            self._step()
            for name, bound in zip(names, (key, item) if len(names) == 2 else (item,), strict=False):
                self._bind(name, bound, declares=declares)
            ending = self.body(node.body, item)
            del self._variables[known:]
            if ending and ending != "continue":
                return "" if ending == "break" else ending
        return self.body(node.otherwise, dot) if is_empty else ""

    def _call(self, name: str, value: Any) -> str:
        if name not in self._definitions:
            raise invalid_arg(f'template: no template "{name}"')
        self._calls += 1
        if self._calls > _DEEPEST_CALL:
            raise _too_much(f'template "{name}" calls itself without an end')
        outside, self._variables = self._variables, [("$", value)]
        ending = self.body(self._definitions[name], value)
        self._variables = outside
        self._calls -= 1
        return ending

    def _pipeline(self, pipeline: Pipeline, dot: Any) -> Any:
        value: Any = None
        for place, command in enumerate(pipeline.commands):
            value = self._command(command, dot, [value] if place else [])
        return value

    def _command(self, command: tuple[Operand, ...], dot: Any, piped: list[Any]) -> Any:
        first, *rest = command
        if not isinstance(first, Function):
            if rest or piped:
                raise invalid_arg("template: can't give an argument to what is no function")
            return self._operand(first, dot)
        if first.name in ("and", "or") and (rest or piped):
            return self._needed(first.name, rest, dot, piped)
        return self._apply(first.name, [self._operand(operand, dot) for operand in rest] + piped)

    def _needed(self, name: str, operands: list[Operand], dot: Any, piped: list[Any]) -> Any:
        """``and`` ends at the first value that is not true, ``or`` at the first that is."""
        value: Any = None
        for operand in operands:
            value = self._operand(operand, dot)
            if is_true(value) is (name == "or"):
                return value
        return piped[0] if piped else value

    def _apply(self, name: str, arguments: list[Any]) -> Any:
        self._step()
        try:
            _SIGNATURES[name].bind(*arguments)
        except TypeError:
            raise invalid_arg(f"template: wrong number of args for {name}: got {len(arguments)}") from None
        value = FUNCTIONS[name](*arguments)
        if isinstance(value, str) and len(value) > self._most:
            raise _too_much(f"a value of it has more than {self._most} characters")
        return value

    def _operand(self, operand: Operand, dot: Any) -> Any:
        self._step()
        match operand:
            case Constant(value):
                return value
            case Dot():
                return dot
            case Field(owner, name):
                return field_of(self._operand(owner, dot), name)
            case Variable(name):
                return self._variable(name)
            case Function(name):
                return self._apply(name, [])
        return self._pipeline(operand, dot)

    def _variable(self, name: str) -> Any:
        for known, value in reversed(self._variables):
            if known == name:
                return value
        raise invalid_arg(f"template: undefined variable {name}")


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    """What ``range`` goes over, each with its index or key."""
    if value is None:
        return ()
    if isinstance(value, list):
        return enumerate(value)
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, Struct) and value.is_map:
        return value.fields.items()
    if isinstance(value, Struct | bool) or not isinstance(value, int):
        raise invalid_arg(f"template: range can't iterate over {kind_of(value)}")
    return ((number, number) for number in range(value))


def _too_much(problem: str) -> ServeError:
    return invalid_arg(f"template cannot be carried out: {problem}")
