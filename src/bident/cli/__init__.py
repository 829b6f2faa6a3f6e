"""The ``bident`` command: a client of the servers' public APIs, and the way to start them.

Exit codes: 0 it worked, 1 it did not (one line on standard error says why and what to do), 2 the
command line of anything but ``serve`` was wrong. ``serve`` answers a wrong flag with 1, as
``tritonserver`` does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command line and exit with its code."""
    from bident.errors import ServeError, SettingsError

    words = list(sys.argv[1:] if argv is None else argv)
    try:
        sys.exit(_run(words))
    except SettingsError as error:
        print(f"bident: {error.message}", file=sys.stderr)
        sys.exit(1 if words[:1] == ["serve"] else 2)
    except ServeError as error:
        print(f"bident: {error.message}", file=sys.stderr)
    except BrokenPipeError:
        # Whoever read our output has gone (`bident ls | head`); nothing may be flushed to them any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"bident: {error}", file=sys.stderr)
    except Exception as error:
        if words[:1] == ["serve"] or os.environ.get("BIDENT_TRACEBACK"):
            raise  # A server's log is where its traceback belongs.
        kind = type(error).__name__
        print(f"bident: {kind}: {error}. This is a fault in Bident; BIDENT_TRACEBACK=1 shows where", file=sys.stderr)
    sys.exit(1)


def _run(words: list[str]) -> int:
    if words == ["version"]:
        words = ["--version"]
    elif words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    # A server must start quickly, and needs nothing of what the other commands import.
    if words[:1] == ["serve"]:
        from bident.cli.serve import serve

        return serve(words[1:])
    from bident.cli.app import app

    app(words or ["--help"], prog_name="bident")
    return 0
