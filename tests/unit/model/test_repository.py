import os
from pathlib import Path

import pytest

from bident.errors import Code, ServeError
from bident.model.repository import Listing, Repository


def make(path, *names):
    for name in names:
        (path / name / "1").mkdir(parents=True)
    return path


def test_only_model_folders_are_listed(tmp_path):
    make(tmp_path, "b", "a", ".git", ".ipynb_checkpoints", "lost+found", "..data")
    (tmp_path / "README.md").touch()
    (tmp_path / ".DS_Store").touch()
    (tmp_path / "linked").symlink_to(tmp_path / "a")
    (tmp_path / "broken").symlink_to("absent")
    repository = Repository([tmp_path])
    assert repository.names() == Listing({tmp_path: frozenset({"a", "b", "linked"})})
    assert repository.names().names == ["a", "b", "linked"]
    for no_folder in ("README.md", "broken"):
        with pytest.raises(ServeError, match=f"failed to load '{no_folder}', failed to poll"):
            repository.find(no_folder)
    for hidden in (".git", "..data", "lost+found"):
        with pytest.raises(ServeError, match=r"hidden folder|path traversal") as refused:
            repository.find(hidden)
        assert refused.value.code is Code.INVALID_ARG


def test_a_folder_is_found_with_the_repositorys_settings(tmp_path):
    make(tmp_path, "m")
    folder = Repository([tmp_path], config_name="small", auto_complete=False).find("m")
    assert (folder.name, folder.directory, folder.config_name, folder.auto_complete) == (
        "m",
        tmp_path / "m",
        "small",
        False,
    )
    assert folder.versions() == [1]


def test_unknown_models_are_refused_with_the_nearest_name(tmp_path):
    make(tmp_path, "resnet18", "iris")
    with pytest.raises(ServeError, match=r"did you mean 'resnet18'\?") as refused:
        Repository([tmp_path]).find("ResNet18")
    assert refused.value.code is Code.INTERNAL
    assert refused.value.message.startswith("failed to load 'ResNet18', failed to poll from model repository")


def test_a_name_in_two_repositories_is_served_from_neither(tmp_path):
    first, second = make(tmp_path / "first", "both", "one"), make(tmp_path / "second", "both")
    repository = Repository([first, second])
    assert repository.names().names == ["both", "one"]
    assert repository.find("one").directory == first / "one"
    with pytest.raises(ServeError, match=r"'both': not unique across all model repositories .*first.*second"):
        repository.find("both")


def test_a_folder_that_is_named_twice_is_one_repository(tmp_path):
    make(tmp_path, "m")
    repository = Repository([tmp_path, tmp_path / "."])
    assert repository.find("m").directory == tmp_path / "m"


def test_what_cannot_be_read_is_reported_and_the_rest_served(tmp_path):
    repository = Repository([make(tmp_path / "good", "m"), tmp_path / "absent"])
    for _ in range(2):
        listing = repository.names()
        assert listing.roots == {tmp_path / "good": frozenset({"m"})}
        (problem,) = listing.problems
        assert "absent" in problem


def test_an_entry_that_cannot_be_read_is_named_and_costs_no_other(tmp_path):
    make(tmp_path, "m")
    (tmp_path / "loop").symlink_to("loop")
    listing = Repository([tmp_path]).names()
    assert (listing.names, listing.unreadable) == (["m"], {"loop"})
    assert "loop" in listing.problems[0]


def test_a_folder_whose_name_is_no_text_is_a_problem_and_no_model(tmp_path):
    make(tmp_path, "m")
    (tmp_path / os.fsdecode(b"bad\xff")).mkdir()
    listing = Repository([tmp_path]).names()
    assert listing.names == ["m"]
    assert "is not UTF-8" in listing.problems[0]
    listing.problems[0].encode()


def test_names_no_file_system_takes_are_simply_unknown(tmp_path):
    with pytest.raises(ServeError, match="failed to poll from model repository"):
        Repository([tmp_path]).find("x" * 300)


@pytest.mark.parametrize("name", ["", "..", "../m", "m\0", ".", ".git", "lost+found", "a\udcffb"])
def test_bad_names_are_refused_before_the_disk_is_asked(tmp_path, name, monkeypatch):
    monkeypatch.setattr(Path, "is_dir", lambda path: pytest.fail(f"asked for {path}"))
    with pytest.raises(ServeError) as refused:
        Repository([tmp_path]).find(name)
    assert refused.value.code is Code.INVALID_ARG
    refused.value.message.encode()


def test_a_thousand_models_are_listed_once_and_each_found_directly(tmp_path, monkeypatch):
    make(tmp_path, *(f"model_{index}" for index in range(1000)))
    scans, looks = [], []
    scandir, is_dir = os.scandir, Path.is_dir
    monkeypatch.setattr(os, "scandir", lambda path: scans.append(path) or scandir(path))
    monkeypatch.setattr(Path, "is_dir", lambda path: looks.append(path) or is_dir(path))
    repository = Repository([tmp_path])
    assert len(repository.names().names) == 1000
    assert (len(scans), len(looks)) == (1, 0)
    repository.find("model_500")
    assert (len(scans), len(looks)) == (1, 1)
