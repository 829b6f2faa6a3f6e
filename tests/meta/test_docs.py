"""The manual says what the code says."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

from bident.cli.app import app
from bident.settings import TABLE, TEXT_TABLE

ROOT = Path(__file__).parents[2]
HOW_TO = sorted(path.name for path in (ROOT / "docs" / "how-to").glob("*.md"))
ELSEWHERE = {
    *("--answerer", "--collection", "--least", "--milvus"),
    *("--cacert", "--config", "--config.file", "--env-file", "--force-recreate", "--port"),
    *("--help", "--rm", "--wait", "--web"),
}
"""Flags of programs other than ``bident``: of examples, curl, docker, LiteLLM, Prometheus."""


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_reference_pages_are_up_to_date() -> None:
    generator = _generator()
    for name, page in generator.PAGES.items():
        written = (generator.HERE / name).read_text(encoding="utf-8")
        assert written == page(), f"docs/reference/{name} is old: run python docs/generate.py"


def test_every_metric_of_the_page_is_rendered_once() -> None:
    names = [family.name for family in _generator().FAMILIES]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "page",
    [
        *(path.name for path in ROOT.glob("*.md")),
        *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
        *(f"docs/how-to/{name}" for name in HOW_TO),
    ],
)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"


def test_the_readme_leads_to_every_how_to_page() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in HOW_TO if f"](docs/how-to/{name})" not in text] == []


def _flags_of_commands() -> set[str]:
    def of(command: Any) -> set[str]:
        own = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
        return own.union(*(of(each) for each in getattr(command, "commands", {}).values()))

    return of(typer.main.get_command(app))


def test_flags_on_the_pages_exist() -> None:
    flags = {flag for row in TABLE for flag in (row.flag, *row.aliases)} | ELSEWHERE | _flags_of_commands()
    flags |= {f"--text-{row.key}" for row in TEXT_TABLE} | {f"--{row.key}" for row in TEXT_TABLE}
    for name in HOW_TO:
        text = (ROOT / "docs" / "how-to" / name).read_text(encoding="utf-8")
        found = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9](?![\w*-])", text))
        assert found <= flags, f"{name} names {sorted(found - flags)}"


def test_commands_in_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = set(re.findall(r"^bident ([a-z]+)", text, re.MULTILINE))
    assert commands
    listing = subprocess.run(
        [sys.executable, "-m", "bident", "--help"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert not {command for command in commands if not re.search(rf"^\s+{command}\b", listing, re.MULTILINE)}


def test_make_targets_in_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"make ([a-z-]+)", text)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"the README names `make {target}`"


def test_the_architecture_names_what_there_is() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for name in set(re.findall(r"`([\w/]+(?:\.py|/))`", text)):
        assert (ROOT / "src" / "bident" / name).exists() or (ROOT / name).exists(), name


def test_the_architecture_names_every_room() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = {path.name for path in (ROOT / "src" / "bident").iterdir() if (path / "__init__.py").exists()}
    assert {room for room in rooms if f"`{room}/`" not in text} == set()


def test_the_chinese_readme_says_the_same_commands() -> None:
    ours, theirs = (
        re.findall(r"```\w*\n.*?```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL)
        for name in ("README.md", "README.zh-CN.md")
    )
    assert theirs == ours, "README.zh-CN.md is read by people who copy from it: keep its blocks those of README.md"


def test_the_chinese_readme_has_the_same_parts() -> None:
    ours, theirs = (
        len(re.findall(r"^## ", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE))
        for name in ("README.md", "README.zh-CN.md")
    )
    assert theirs == ours - 1, "the table of features and the how-to pages are one part there"
