import os
from pathlib import Path

import pytest

from bident.errors import Code, ServeError
from bident.model.repository import Repository


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
    assert repository.names() == ["a", "b", "linked"]
    assert repository.problems == []
    for hidden in (".git", "lost+found", "README.md", "broken"):
        with pytest.raises(ServeError, match=f"failed to load '{hidden.replace('+', '.')}', failed to poll"):
            repository.find(hidden)


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
    assert repository.names() == ["both", "one"]
    assert repository.find("one").directory == first / "one"
    with pytest.raises(ServeError, match=r"'both': not unique across all model repositories .*first.*second"):
        repository.find("both")


def test_what_cannot_be_read_is_reported_and_the_rest_served(tmp_path):
    repository = Repository([make(tmp_path / "good", "m"), tmp_path / "absent"])
    assert repository.names() == ["m"]
    assert len(repository.problems) == 1
    assert "absent" in repository.problems[0]
    assert repository.names() == ["m"]
    assert len(repository.problems) == 1, "problems of the last listing only"


@pytest.mark.parametrize("name", ["x" * 300, "a\udcffb"])
def test_names_no_file_system_takes_are_simply_unknown(tmp_path, name):
    with pytest.raises(ServeError, match="failed to poll from model repository"):
        Repository([tmp_path]).find(name)


@pytest.mark.parametrize("name", ["", "..", "../m", "m\0"])
def test_bad_names_are_refused_before_the_disk_is_asked(tmp_path, name):
    repository = Repository([tmp_path])
    for ask in (repository.find, repository.check_name):
        with pytest.raises(ServeError) as refused:
            ask(name)
        assert refused.value.code is Code.INVALID_ARG


def test_a_thousand_models_are_listed_once_and_each_found_directly(tmp_path, monkeypatch):
    make(tmp_path, *(f"model_{index}" for index in range(1000)))
    scans, looks = [], []
    scandir, is_dir = os.scandir, Path.is_dir
    monkeypatch.setattr(os, "scandir", lambda path: scans.append(path) or scandir(path))
    monkeypatch.setattr(Path, "is_dir", lambda path: looks.append(path) or is_dir(path))
    repository = Repository([tmp_path])
    assert len(repository.names()) == 1000
    assert (len(scans), len(looks)) == (1, 0)
    repository.find("model_500")
    assert (len(scans), len(looks)) == (1, 1)
