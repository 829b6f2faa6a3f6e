"""docs/how-to/containers.md: its commands, typed."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from pages import PAGES, sections, typed

from bident.ship.compose import BIDENT_IMAGE, TRITON_IMAGE

PAGE = sections("containers.md")


def test_the_commands_do_what_the_page_says(tmp_path: Path) -> None:
    (command,) = PAGE[""].of("sh")
    assert "deploy/docker-compose.yml" in typed(command, tmp_path)
    tree = yaml.safe_load((tmp_path / "deploy" / "docker-compose.yml").read_text())
    assert set(tree["services"]) == {"tensor", "text"}
    assert "--load-model=iris_sklearn" in tree["services"]["tensor"]["command"]
    assert {key: entry["name"] for key, entry in tree["networks"].items()} == {
        "litellm_net": "litellm_default",
        "dify_net": "docker_default",
    }
    other, none = PAGE["Networks"].of("sh")[0].strip().splitlines()
    assert list(yaml.safe_load(typed(other, tmp_path))["networks"]) == ["my_stack_default"]
    assert "networks" not in yaml.safe_load(typed(none, tmp_path))
    (nvidias,) = PAGE["NVIDIA"].of("sh")
    (service,) = yaml.safe_load(typed(nvidias, tmp_path))["services"].values()
    assert service["image"] == TRITON_IMAGE


def test_the_page_names_the_images_of_this_version() -> None:
    text = (PAGES / "containers.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\bbident:[\d.]*\d", text)) == {BIDENT_IMAGE}
    assert TRITON_IMAGE in text
