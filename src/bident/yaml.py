"""YAML, written: configuration for other programs, as people write it."""

from __future__ import annotations

import re
from typing import Any

import yaml

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]+")
"""A text that every reader of YAML takes for a text, unless it is one of the words that PyYAML quotes by itself."""
_ONE_LINE = 1 << 30


class _Dumper(yaml.SafeDumper):
    """Lists stand further in than their keys, and texts of several lines as they are."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, indentless=False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # In quotes rather than plain: readers of YAML 1.1 and 1.2 differ in what else is a number or a bool.
    style = "|" if "\n" in text else None if _WORD.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _text)


def to_yaml(value: Any) -> str:
    """``value`` (mappings, lists, texts, numbers, bools, None) as a YAML document in block style, in its order.

    Raises YAMLError for other values.
    """
    return yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_ONE_LINE, default_flow_style=False
    )
