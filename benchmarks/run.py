"""The benchmark run: every bar of the project, against peers measured in the same run.

    python -m benchmarks.run [--quick] [NAMES...]

Prints one table. A full run (not ``--quick``) also writes ``benchmarks/results.json`` and the table
in ``docs/benchmarks.md``; naming benchmarks measures those alone and keeps the others' results.
Exit code: 0 all bars cleared, 1 a bar missed or a benchmark failed, 2 something is not installed.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import h2load, report, wrk
from benchmarks.peers import triton
from benchmarks.plan import Plan
from benchmarks.servers import bident_command
from benchmarks.table import Row, rich_table

NAMES = (
    "http",
    "grpc",
    "grpc_stream",
    "resnet",
    "json_decode",
    "fil",
    "start",
    "memory",
    "scale",
    "python",
    "python_large",
    "python_memory",
    "detect",
    "workers",
    "text",
)
"""Each is a module ``<name>_bench`` with a ``TITLE`` and ``run(plan) -> list[Row]``."""

WIDTH_OF_A_FILE = 160
"""Columns of the table where there is no terminal to ask."""

NEEDS_WRK = {"http", "memory", "scale", "python", "workers"}
NEEDS_H2LOAD = {"grpc"}
NEEDS_TRITON = {"http", "grpc", "grpc_stream", "python", "python_large"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description="Measure Bident against its peers.")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds; nothing is written")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)} (default: all)")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(NAMES))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(NAMES)}")
    names = [name for name in NAMES if name in (options.names or NAMES)]
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH_OF_A_FILE)
    if absent := missing(names):
        console.print("\n".join(absent), style="red")
        return 2
    return _run(console, names, quick=options.quick)


def missing(names: Sequence[str]) -> list[str]:
    """What the benchmarks ``names`` need and this machine lacks, with how to get it."""
    chosen = set(names)
    absent = []
    if not bident_command().exists():
        absent.append(f"no {bident_command()}: install Bident into this environment (make up)")
    if chosen & NEEDS_WRK and not wrk.installed():
        absent.append(str(wrk.WrkMissingError()))
    if chosen & NEEDS_H2LOAD and not h2load.installed():
        absent.append(str(h2load.H2loadMissingError()))
    if chosen & NEEDS_TRITON and not triton.installed():
        absent.append(str(triton.TritonMissingError()))
    return absent


def _run(console: Console, names: Sequence[str], *, quick: bool) -> int:
    sections: dict[str, report.Section] = {}
    failed = []
    for name in names:
        benchmark = importlib.import_module(f"benchmarks.{name}_bench")
        try:
            with console.status(f"measuring: {benchmark.TITLE}"), tempfile.TemporaryDirectory() as workspace:
                rows: list[Row] = benchmark.run(Plan(Path(workspace), quick))
        except Exception:
            # One benchmark that cannot be measured must not cost the results of the others.
            console.print_exception()
            failed.append(name)
            continue
        sections[name] = report.Section.of_now(benchmark.TITLE, rows)
    if not sections:
        return 1
    console.print(rich_table({section.title: section.rows for section in sections.values()}))
    if not quick:
        merged = {**report.load(), **sections}
        ordered = {name: merged[name] for name in NAMES if name in merged}
        report.save(ordered)
        report.publish(ordered)
    passed = all(row.passed for section in sections.values() for row in section.rows)
    return int(bool(failed) or not passed)


if __name__ == "__main__":
    sys.exit(main())
