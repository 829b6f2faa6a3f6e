"""``bident serve``: the servers in the foreground, told what ``tritonserver`` is told."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bident.errors import SettingsError
from bident.settings import TABLE, Setting, parse_tensor_args

DEFAULTS = {"model_repository": "model_repository"}
"""What 'bident up' and 'bident serve' take for granted; 'bident serve tensor' is as strict as tritonserver."""
_SERVERS = ("tensor", "text")
_HINT = "try 'bident serve --help' for every flag"

_USAGE = """\
Usage: bident serve [tensor] [flags]

  bident serve tensor   the tensor server alone: KServe v2 as Triton speaks it
  bident serve          all there is; today that is the tensor server, the text engine comes later.
                        Its model repository is ./model_repository unless a flag says otherwise

Flags are tritonserver's: --x=y or --x y. Each is also an environment variable (BIDENT_HTTP_PORT;
';' between repeated values) and a key of the [tensor] table in bident.toml (http-port).
A flag goes before the environment, the environment before the file.
Exit codes: 0 stopped as asked, 1 could not start or a flag is wrong.
"""


def serve(argv: Sequence[str]) -> int:
    """Run ``bident serve ARGV`` until the server stops; its exit code. Raises what keeps it from starting."""
    words = list(argv)
    which = words.pop(0) if words and words[0] in _SERVERS else ""
    if {"--help", "-h"} & set(words):
        show_help()
        return 0
    if which == "text":
        return _refuse("there is no text server yet; 'bident serve tensor' runs the tensor server")
    try:
        settings = parse_tensor_args(words, os.environ, config_file(), {} if which else DEFAULTS)
    except SettingsError as error:
        return _refuse(f"{error.message}\n{_HINT}")
    if not settings.model_repository:
        return _refuse("--model-repository must be specified, as in --model-repository=./model_repository\n" + _HINT)
    # Only here, when the command line is known to be good: this imports the whole server.
    from bident.app import run_tensor

    return run_tensor(settings)


def config_file() -> Path | None:
    """``bident.toml`` in the working directory, if there is one."""
    path = Path("bident.toml")
    return path if path.is_file() else None


def show_help() -> None:
    """Print every flag, by group, with its value, default and effect."""
    print(_USAGE)
    group = ""
    for row in TABLE:
        if row.group != group:
            group = row.group
            print(f"{group}:")
        value = f" {row.kind.metavar}" if row.takes_value else ""
        print(f"  {row.flag}{value}")
        print(f"        {row.help}{_default(row)}")
        if row.replacement:
            print(f"        Deprecated: use {row.replacement}.")
        if row.effect:
            print(f"        No effect{row.effect.removeprefix('none')}.")


def _default(row: Setting) -> str:
    if not row.takes_value or row.default in ("", None, (), {}):
        return ""
    shown = str(row.default).lower() if isinstance(row.default, bool) else row.default
    return f" Default: {shown}."


def _refuse(message: str) -> int:
    print(f"bident: {message}", file=sys.stderr)
    return 1
