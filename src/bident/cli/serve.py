"""``bident serve``: the servers in the foreground, told what ``tritonserver`` is told."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bident.errors import SettingsError
from bident.settings import (
    TABLE,
    TEXT_TABLE,
    Setting,
    given_texts,
    parse_both_args,
    parse_tensor_args,
    parse_text_args,
    split_flags,
)
from bident.settings.parse import TEXT_FLAG

if TYPE_CHECKING:
    from bident.settings import TensorSettings

DEFAULTS = {"model_repository": "model_repository"}
"""What 'bident up' and 'bident serve' take for granted; 'bident serve tensor' is as strict as tritonserver."""
_SERVERS = ("tensor", "text")
_HINT = "try 'bident serve --help' for every flag"
_COMMAND = (sys.executable, "-m", "bident", "serve")

_USAGE = """\
Usage: bident serve [tensor|text] [flags]

  bident serve          both servers, each its own process. One that dies is started again, and the
                        other does not notice. The model repository is ./model_repository unless a
                        flag says otherwise; the text server's flags begin with --text-, as --text-port
  bident serve tensor   the tensor server alone: KServe v2 as Triton speaks it
  bident serve text     the text server alone: Ollama's API and OpenAI's; its flags are without --text-

Flags are --x=y or --x y; the tensor server's are tritonserver's. Each is also an environment variable
(BIDENT_HTTP_PORT, BIDENT_TEXT_PORT; ';' between repeated values) and a key of the [tensor] or the
[text] table in bident.toml (http-port). A flag goes before the environment, the environment before
the file.
Exit codes: 0 stopped as asked, 1 could not start or a flag is wrong.
"""


def serve(argv: Sequence[str]) -> int:
    """Run ``bident serve ARGV`` until the server stops; its exit code. Raises what keeps it from starting."""
    words = list(argv)
    which = words.pop(0) if words and words[0] in _SERVERS else ""
    if {"--help", "-h"} & set(words):
        show_help(which)
        return 0
    if which:
        from bident.servers import end_with_supervisor

        end_with_supervisor()
    try:
        return {"tensor": _serve_tensor, "text": _serve_text, "": _serve_both}[which](words)
    except SettingsError as error:
        return _refuse(f"{error.message}\n{_HINT}")


def _serve_tensor(words: list[str]) -> int:
    settings = parse_tensor_args(words, os.environ, config_file())
    if not settings.model_repository:
        return _refuse("--model-repository must be specified, as in --model-repository=./model_repository\n" + _HINT)
    if settings.engine == "triton":
        return _serve_triton(settings, words)
    # Only here, when the command line is known to be good: this imports the whole server.
    from bident.app import run_tensor

    return run_tensor(settings)


def _serve_triton(settings: TensorSettings, words: list[str]) -> int:
    from bident.cli.background import check_doors, tensor_doors, with_real_ports
    from bident.model.repository import check_folders
    from bident.ship.triton.run import run_triton

    _log_beside(settings)
    check_folders(settings.model_repository)
    settings = with_real_ports(settings)
    check_doors(tensor_doors(settings))
    return run_triton(settings, given_texts(words, os.environ, config_file())[0])


def _serve_text(words: list[str]) -> int:
    settings = parse_text_args(words, os.environ, config_file())
    from bident.doors.api_keys import ApiKeys
    from bident.text.server import run_text

    return run_text(settings, ApiKeys(settings.api_key_file) if settings.api_key_file else None)


def _serve_both(words: list[str]) -> int:
    from bident.cli import text_server
    from bident.servers import ServerStart, logger, run_servers

    tensor, text = parse_both_args(words, os.environ, config_file(), DEFAULTS)
    _log_beside(tensor)
    tensor_words, text_words = split_flags(words)
    if "model_repository" not in given_texts(words, os.environ, config_file())[0]:
        tensor_words.append(f"--model-repository={DEFAULTS['model_repository']}")
    if tensor.config_file and not text.config_file:
        text_words.append(f"--config-file={tensor.config_file}")
    starts = [ServerStart("tensor", [*_COMMAND, "tensor", *tensor_words], tensor.exit_timeout_secs)]
    if absence := text_server.absence(text):
        logger.warning("no text server is started: %s", absence)
    else:
        starts.append(ServerStart("text", [*_COMMAND, "text", *text_words], text.exit_timeout_secs))
    return run_servers(starts)


def _log_beside(settings: TensorSettings) -> None:
    """Have what this process logs look like the tensor server's log, on standard error whatever ``--log-file`` is."""
    from bident.observe import log

    log.configure(
        verbose=settings.log_verbose,
        info=settings.log_info,
        warning=settings.log_warning,
        error=settings.log_error,
        style=settings.log_format,
        path="",
    )


def config_file() -> Path | None:
    """``bident.toml`` in the working directory, if there is one."""
    path = Path("bident.toml")
    return path if path.is_file() else None


def show_help(which: str) -> None:
    """Print every flag of the servers that ``which`` starts, by group, with its value, default and effect."""
    print(_USAGE)
    if which != "text":
        _list(TABLE, "--")
    if which != "tensor":
        _list(TEXT_TABLE, "--" if which else TEXT_FLAG)


def _list(table: Sequence[Setting], prefix: str) -> None:
    group = ""
    for row in table:
        if row.group != group:
            group = row.group
            print(f"{group}:")
        value = f" {row.kind.metavar}" if row.takes_value else ""
        print(f"  {prefix}{row.key}{value}")
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
