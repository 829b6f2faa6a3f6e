"""docs/tutorial.md: every command typed in its order, every program saved under the name that the page gives it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from newcomer import Newcomer, commands

from tests.shell import blocks

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
EXPECTED = {
    "bident show iris_sklearn": "probabilities",
    "bident run iris_sklearn": "setosa",
    "curl http://127.0.0.1:8000": '"data":[0]',
    "bident run smollm2": "",
    "python train.py": "the first wine is of class 0",
    "bident add wine.onnx": "output_probability",
    "bident run wine": "output_label",
    "bident logs": "ZipMap",
    "bident run tickets": "login",
    "python answer.py": "billing",
    "bident ps": "tickets",
    "curl http://127.0.0.1:8002": 'nv_inference_request_success{model="tickets",version="1"} 2',
}
"""What the commands print that begin so."""


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    shell = Newcomer(tmp_path)
    yield shell
    if (tmp_path / ".bident").exists():
        shell.types("bident down")


@pytest.mark.timeout(300)
def test_it_goes_as_it_says(newcomer: Newcomer) -> None:
    names = re.findall(r"Save this as `([\w.]+)`", PAGE.read_text(encoding="utf-8"))
    seen = set()
    for language, text in blocks(PAGE):
        if language == "python":
            (newcomer.folder / names.pop(0)).write_text(newcomer.here(text), encoding="utf-8")
        for command in commands(text) if language == "sh" else ():
            printed = newcomer.types(command)
            for start in filter(command.startswith, EXPECTED):
                seen.add(start)
                assert EXPECTED[start] in printed, f"{command}\n{printed}"
                assert printed.strip(), command
    assert names == []
    assert seen == set(EXPECTED)
