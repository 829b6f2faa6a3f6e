"""Says what is wrong with the text of a ``config.pbtxt`` that protobuf refuses, and the cure.

protobuf's own message names the line and the token; this adds the field meant, the placeholder never
filled in, the comma too many. Its wording is read only to improve the advice: an unknown wording is
passed on as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bident.model.hints import did_you_mean, listed
from bident.model.proto import pb

_LFS = "version https://git-lfs"
_PLACEHOLDER = re.compile(r"\$\{[^}\n]*\}")
_NO_FIELD = re.compile(r'Message type "([^"]+)" has no field named "([^"]+)"')
_NO_VALUE = re.compile(r'Enum type "([^"]+)" has no value named "?(\w+)')
_NO_JSON_VALUE = re.compile(r"Invalid enum value (\w+) for enum type ([\w.]+)")
_BARE_WORD = re.compile(r"Expected string but found: '([^']+)'")
_FIELD = re.compile(r"([A-Za-z_]\w*)\s*(?=[:{<\[])")
_COMMENT = re.compile(r"#[^\n]*")


@dataclass(frozen=True)
class _Fault:
    """Where protobuf stopped: ``line`` is the text of that line, ``column`` counts from 1."""

    reason: str
    line: str
    column: int


def explain(text: str, reason: str, line: int, column: int) -> str:
    """The reason and the cure for a parse error that protobuf reports at ``line``:``column``."""
    lines = text.split("\n")
    content = lines[line - 1] if 0 < line <= len(lines) else ""
    reason = re.sub(r"^\d+:\d+ : ", "", reason).removeprefix(f"'{content}': ").removeprefix("'': ").rstrip(". ")
    fault = _Fault(reason, content, column)
    before = "\n".join([*lines[: line - 1], content[: column - 1]])
    field = _field_before(before)
    where = f" (field '{field}')" if field and not _NO_FIELD.search(reason) else ""
    cure = next((cure for rule in _RULES if (cure := rule(fault))), "correct the text at that place")
    return f"{reason}{where}; {cure}"


def cure_of(reason: str) -> str:
    """The cure for protobuf's complaint about a name, in text or in JSON; empty for other complaints."""
    fault = _Fault(reason, "", 1)
    return _field_name(fault) or _enum_word(fault)


def _known_field(message_type: str, field: str) -> str:
    descriptor = pb.DESCRIPTOR.pool.FindMessageTypeByName(message_type)
    names = [own.name for own in descriptor.fields]
    owners = [own.name for own in pb.ModelConfig.DESCRIPTOR.fields if _holds(own.message_type, field)]
    if field in pb.ModelConfig.DESCRIPTOR.fields_by_name:
        return f"'{field}' belongs at the top level of the config"
    if owners:
        return f"'{field}' belongs inside {listed(owners)}"
    hint = did_you_mean(field, names)
    return hint if hint.startswith("did you mean") else f"remove it ({message_type} has {', '.join(names)})"


def _known_value(enum_type: str, value: str) -> str:
    names = list(pb.DESCRIPTOR.pool.FindEnumTypeByName(enum_type).values_by_name)
    same_end = [name for name in names if name.endswith(f"_{value.upper()}")]
    return f"did you mean '{same_end[0]}'?" if same_end else did_you_mean(value, names)


def wrong_kind_of_file(text: bytes) -> str:
    """What the file is instead of a config, with the cure; empty when it may well be one."""
    start = text[:200].lstrip()
    if start.startswith(_LFS.encode()):
        return "the file is a Git LFS pointer, not the config itself; run 'git lfs pull'"
    if text[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "the file is UTF-16 text; save it as UTF-8"
    if start.startswith(b"{"):
        return "the file is JSON; config.pbtxt is protobuf text: max_batch_size: 8 without braces or commas"
    return ""


def _holds(message_type: Any, field: str) -> bool:
    return message_type is not None and field in message_type.fields_by_name


def _field_before(text: str) -> str:
    found = _FIELD.findall(_COMMENT.sub("", text))
    return found[-1] if found else ""


def _placeholder(fault: _Fault) -> str:
    found = _PLACEHOLDER.search(fault.line)
    return f"the placeholder '{found.group()}' was never filled in: put a value there" if found else ""


def _field_name(fault: _Fault) -> str:
    found = _NO_FIELD.search(fault.reason)
    return _known_field(*found.groups()) if found else ""


def _enum_word(fault: _Fault) -> str:
    if found := _NO_VALUE.search(fault.reason):
        return _known_value(found.group(1), found.group(2))
    if found := _NO_JSON_VALUE.search(fault.reason):
        return _known_value(found.group(2).rstrip("."), found.group(1))
    return ""


def _trailing_comma(fault: _Fault) -> str:
    before, after = fault.line[: fault.column - 1].rstrip(), fault.line[fault.column - 1 :]
    return "remove the comma before ']'" if after.startswith("]") and before.endswith(",") else ""


def _bare_word(fault: _Fault) -> str:
    found = _BARE_WORD.search(fault.reason)
    return f'put it in quotes: "{found.group(1)}"' if found else ""


def _twice(fault: _Fault) -> str:
    repeated = "should not have multiple" in fault.reason or "another member of oneof" in fault.reason
    return "keep one of the two" if repeated else ""


def _string(fault: _Fault) -> str:
    if "missing ending quote" in fault.reason:
        return 'close the string with "'
    return "write the text in UTF-8" if "Couldn't parse string" in fault.reason else ""


def _number(fault: _Fault) -> str:
    return "write a plain number, such as 8" if "Couldn't parse integer" in fault.reason else ""


_RULES: tuple[Callable[[_Fault], str], ...] = (
    _placeholder,
    _field_name,
    _enum_word,
    _trailing_comma,
    _bare_word,
    _twice,
    _string,
    _number,
)
