"""A model's folder that was given for the repository it lies in."""

from __future__ import annotations

from pathlib import Path

import pytest

from bident.model import near_miss


def make(repository: Path, *files: str) -> Path:
    for name in files:
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).touch()
    return repository


@pytest.mark.parametrize(
    "files", [["config.pbtxt"], ["1/model.py"], ["12/xgboost.ubj", "labels.txt"], ["config.pbtxt", "1/.keep"]]
)
def test_a_models_folder_is_told(tmp_path: Path, files: list[str]) -> None:
    folder = make(tmp_path / "shout", *files)
    said = near_miss.taken_for_repository(folder)
    assert said.startswith("this looks like a model folder, not a repository: give its parent")
    assert f"{tmp_path}, and the model is served as 'shout'" in said


@pytest.mark.parametrize(
    "files",
    [
        [],
        ["README.md", "shout/config.pbtxt"],
        ["shout/1/model.py"],
        # Names of models may be numbers, and a stray file makes no model.
        ["12/config.pbtxt", "12/1/model.py"],
        ["config.pbtxt", "shout/1/model.py"],
        ["1/notes.txt"],
    ],
)
def test_a_repository_is_none(tmp_path: Path, files: list[str]) -> None:
    assert near_miss.taken_for_repository(make(tmp_path, *files)) == ""
