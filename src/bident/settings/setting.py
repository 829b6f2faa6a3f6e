"""One row of the settings table, and the field specifier that writes it beside the attribute.

A setting is declared once, as a field of a group's dataclass (``server.py``, ``doors.py``,
``engine.py``, ``text.py``): its type, default, kind of value, help and effect. Its flag, environment
variable and file key follow from its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol

from bident.settings.values import Kind

CPU_ONLY = "none: Bident runs on the CPU"
"""The ``effect`` of settings that concern GPUs."""

_METADATA = "bident.setting"


class Group(Protocol):
    """A dataclass whose fields are settings that belong together."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    title: ClassVar[str]


@dataclass(frozen=True)
class Setting:
    """One setting, under all its names.

    ``effect`` is empty for a setting that does what it says; otherwise it says why it is accepted
    without doing anything (``none yet: ...`` for what is to come, ``none: ...`` for what has no
    meaning here). ``replacement`` names what a deprecated flag stands for. ``foreign`` is an environment
    variable of another program that says the same, heeded where ours is not set.
    """

    kind: Kind
    default: Any
    help: str
    name: str = ""
    group: str = ""
    flag: str = ""
    aliases: tuple[str, ...] = ()
    effect: str = ""
    replacement: str = ""
    takes_value: bool = True
    foreign: str = ""
    prefix: str = "BIDENT_"
    """What the environment variables of its table begin with."""

    @property
    def key(self) -> str:
        """Its key in its table of ``bident.toml``."""
        return self.flag.removeprefix("--")

    @property
    def environment(self) -> str:
        """Its environment variable."""
        return self.prefix + self.key.upper().replace("-", "_")

    @property
    def repeatable(self) -> bool:
        """Whether giving the flag again adds to it; otherwise the last one wins."""
        return self.kind.collect is not None

    def written(self, texts: Sequence[str]) -> list[str]:
        """The flags that say what it was given as: every text of a repeatable one, else the last."""
        kept = texts if self.repeatable else texts[-1:]
        if self.takes_value:
            return [f"{self.flag}={text}" for text in kept]
        return [self.flag] if any(self.kind.parse(text) for text in kept) else []


def setting(
    kind: Kind,
    default: Any,
    help_text: str,
    *,
    flag: str = "",
    aliases: tuple[str, ...] = (),
    effect: str = "",
    replacement: str = "",
    takes_value: bool = True,
    foreign: str = "",
) -> Any:
    """A dataclass field that is also a row of the table. ``flag`` only where the name does not give it."""
    row = Setting(
        kind,
        default,
        help_text,
        flag=flag,
        aliases=aliases,
        effect=effect,
        replacement=replacement,
        takes_value=takes_value,
        foreign=foreign,
    )
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata={_METADATA: row})
    return field(default=default, metadata={_METADATA: row})


def rows(group: type[Group], prefix: str = Setting.prefix) -> tuple[Setting, ...]:
    """The rows that ``group`` declares, in the order they are written; their variables begin with ``prefix``."""
    found = []
    for declared in fields(group):
        row: Setting = declared.metadata[_METADATA]
        flag = row.flag or "--" + declared.name.replace("_", "-")
        found.append(replace(row, name=declared.name, group=group.title, flag=flag, prefix=prefix))
    return tuple(found)


@dataclass(frozen=True)
class Table:
    """All settings of one server; ``section`` is the table of ``bident.toml`` that sets them."""

    section: str
    rows: tuple[Setting, ...]

    @cached_property
    def by_flag(self) -> dict[str, Setting]:
        """Under every flag, old names too."""
        return {flag: row for row in self.rows for flag in (row.flag, *row.aliases)}

    @cached_property
    def by_key(self) -> dict[str, Setting]:
        """Under the keys of the file."""
        return {flag.removeprefix("--"): row for flag, row in self.by_flag.items()}

    @cached_property
    def by_name(self) -> dict[str, Setting]:
        """Under the names of the attributes."""
        return {row.name: row for row in self.rows}
