"""The manual says what the code says."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from bident.settings import TABLE, TEXT_TABLE

ROOT = Path(__file__).parents[2]
HOW_TO = sorted(path.name for path in (ROOT / "docs" / "how-to").glob("*.md"))
ELSEWHERE = {"--param", "--api-key", "--ca", "--follow", "--header", "--name", "--save", "--url", "--cacert"}
ELSEWHERE |= {"--format", "--help", "--keepalive", "--modelfile", "--system", "--text-url", "--think", "--verbose"}
"""Flags of commands other than the server, and of curl."""


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
        *(
            "README.md",
            "CHANGELOG.md",
            "docs/differences.md",
            "docs/benchmarks.md",
            "docs/architecture.md",
            "docs/tutorial.md",
        ),
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


def test_flags_on_the_pages_exist() -> None:
    flags = {flag for row in TABLE for flag in (row.flag, *row.aliases)} | ELSEWHERE
    flags |= {f"--text-{row.key}" for row in TEXT_TABLE}
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
