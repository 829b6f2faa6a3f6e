"""`make up` in a fresh copy of this repository: an environment of its own, all sample models, a question to each."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from newcomer import Newcomer

from bident.zoo import RECIPES
from bident.zoo.text_samples import TEXT_SAMPLES

_ROOT = Path(__file__).parents[2]
_SECONDS = 800.0

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    """What a clone would have, in a folder of its own."""
    folder = tmp_path_factory.mktemp("copy")
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, cwd=_ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (_ROOT / name).is_file():  # not if it has been deleted, and that is not committed
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(_ROOT / name, folder / name)
    newcomer = Newcomer(folder)
    yield newcomer
    newcomer.types("make down")


def test_every_sample_model_is_served_and_answers_right(copy: Newcomer) -> None:
    copy.types(f"make up PYTHON={sys.executable}", _SECONDS)
    # It has failed if an answer was wrong; which models were asked is told here.
    asked = json.loads(copy.types(".venv/bin/bident zoo check --json"))
    assert {row["model"] for row in asked} == {*(each.name for each in RECIPES.values() if each.in_all), *TEXT_SAMPLES}
    assert [row["model"] for row in asked if not row["ok"]] == []


def test_a_second_one_finds_everything_done(copy: Newcomer) -> None:
    assert "pip" not in copy.types(f"make up PYTHON={sys.executable}")
