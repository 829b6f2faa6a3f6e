"""Changes a ``config.pbtxt``: a few fields, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from bident.doctor import treatment
from bident.doctor.check import Fix
from bident.doctor.models import config_text
from bident.errors import Code, ConfigError, ServeError
from bident.model import pbtxt
from bident.model.files import read_file
from bident.model.proto import ModelConfigProto, pb


@dataclass(frozen=True)
class Step:
    """One field of one message. ``value`` is text format; an empty one takes the field away."""

    name: str
    value: str = ""
    where: tuple[tuple[str, int], ...] = ()
    """The way to the message: the name of a field and which of its messages, for each level."""
    replace: bool = True
    """False adds to a repeated field."""


def config_fix(what: str, path: Path, steps: Sequence[Step]) -> Fix:
    """The cure that takes ``steps`` in the configuration at ``path``."""
    return Fix(what, lambda: edit(path, steps))


def quoted(text: str) -> str:
    """``text`` as a string of the text format, which escapes as JSON does: names can hold anything, quotes too."""
    return json.dumps(text, ensure_ascii=False)


def parameter(key: str, value: str) -> Step:
    """Adds an entry to ``parameters``."""
    return Step("parameters", _parameter(key, value), replace=False)


def set_parameter(config: ModelConfigProto, key: str, value: str) -> Step:
    """Gives ``key`` the one ``value`` among the ``parameters`` that ``config`` has."""
    parameters = {name: entry.string_value for name, entry in sorted(config.parameters.items())} | {key: value}
    entries = [f"  {_parameter(name, text)}" for name, text in parameters.items()]
    return Step("parameters", "[\n" + ",\n".join(entries) + "\n]")


def _parameter(key: str, value: str) -> str:
    return f"{{ key: {quoted(key)} value: {{ string_value: {quoted(value)} }} }}"


def edit(path: Path, steps: Sequence[Step]) -> None:
    """Take ``steps`` in the configuration at ``path``, which need not exist; comments stay. Raises ServeError."""
    try:
        before = read_file(path) if path.exists() else b""
    except OSError as error:
        raise ServeError(Code.UNAVAILABLE, f"cannot read {path}: {error.strerror or error}") from None
    wanted = pbtxt.parse(before, str(path))
    for step in steps:
        _take(wanted, step)
    treatment.replace_file(path, _text(before, steps, wanted).encode("utf-8", "surrogateescape"))


def _take(config: ModelConfigProto, step: Step) -> None:
    message: Any = config
    for name, index in step.where:
        found = getattr(message, name)
        message = found[index] if message.DESCRIPTOR.fields_by_name[name].is_repeated else found
    if step.replace:
        message.ClearField(step.name)
    if step.value:
        text_format.Merge(f"{step.name}: {step.value}", message)


def _text(before: bytes, steps: Sequence[Step], wanted: ModelConfigProto) -> str:
    """The text after ``steps``: with its comments, or, where its layout is beyond us, written anew."""
    text = before.decode("utf-8", "surrogateescape")
    try:
        for step in steps:
            text = config_text.put(text, step.where, step.name, step.value, replace=step.replace)
        reached = pbtxt.parse(text.encode("utf-8", "surrogateescape"), "")
    except (ValueError, ConfigError, RecursionError):
        reached = pb.ModelConfig()
    return text if reached == wanted else text_format.MessageToString(wanted, as_utf8=True)
