"""The text of ``config.pbtxt``: what protobuf refuses, and what only some versions of Triton do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bident.doctor import treatment
from bident.doctor.check import Fix, Weight
from bident.doctor.models.case import Case, ModelCheck, Seen
from bident.doctor.models.config_edit import Step, config_fix
from bident.doctor.models.config_text import comments
from bident.model.files import read_file

_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


class ConfigSyntax(ModelCheck):
    """The configuration cannot be parsed."""

    name = "config-syntax"
    title = "config.pbtxt is no valid text"
    cause = "It is protobuf text: fields of Triton's model_config.proto, strings in quotes, no trailing commas"

    def look(self, case: Case) -> Iterator[Seen]:
        message = case.parsed[1]
        if not message or case.config_text is None:
            return
        fix = None
        if case.config_text.startswith(_UTF16):
            fix = Fix("save it as UTF-8", partial(_as_utf8, case.config_path))
        yield Seen(case.config_path, message, "correct that line", fix=fix)


def _as_utf8(path: Path) -> None:
    treatment.replace_file(path, read_file(path).decode("utf-16", "replace").encode("utf-8"))


class NonAsciiConfig(ModelCheck):
    """A byte order mark, and comments in other than English letters."""

    name = "non-ascii-config"
    title = "config.pbtxt has a byte order mark, or comments that are not ASCII"
    cause = (
        "Editors of Windows put a mark in front of UTF-8, which Triton cannot parse. Comments that are not ASCII are "
        "said to have troubled older versions; Triton 2.51 reads them. Bident reads both"
    )

    def look(self, case: Case) -> Iterator[Seen]:
        if case.config_text is None or case.proto is None:
            return
        lines = [
            case.config_text.count(b"\n", 0, start) + 1
            for start, end in comments(case.config_text.decode("latin-1"))
            if not case.config_text[start:end].isascii()
        ]
        marked = case.config_text.startswith(_BOM)
        if lines or marked:
            seen = ["a byte order mark at its start"] if marked else []
            seen += [f"comments that are not ASCII in line {', '.join(map(str, lines[:10]))}"] if lines else []
            yield Seen(
                case.config_path,
                " and ".join(seen),
                "save it as UTF-8 without a byte order mark, and write comments in ASCII",
                Weight.BROKEN if case.target and marked else Weight.NOTE,
                fix=Fix("take the mark, and these comments, away", partial(_as_ascii, case.config_path)),
            )


def _as_ascii(path: Path) -> None:
    content = read_file(path).removeprefix(_BOM)
    for start, end in reversed(list(comments(content.decode("latin-1")))):
        if not content[start:end].isascii():
            content = content[:start].rstrip(b" \t") + content[end:]
    treatment.replace_file(path, content)


class ConfigName(ModelCheck):
    """``name`` differs from the folder's."""

    name = "config-name"
    title = "The configuration's name is not that of its folder"
    cause = (
        "A model is called as its folder is; name may be left out, but not differ. It remains when a folder is copied"
    )

    def look(self, case: Case) -> Iterator[Seen]:
        if case.proto is not None and case.proto.name not in ("", case.name):
            fits = re.fullmatch(r"[A-Za-z0-9_.-]+", case.name)
            yield Seen(
                case.config_path,
                f'name: "{case.proto.name}" in the folder {case.name}',
                f'write name: "{case.name}", or rename the folder to {case.proto.name}',
                fix=config_fix(f'write name: "{case.name}"', case.config_path, [Step("name", f'"{case.name}"')])
                if fits
                else None,
            )
