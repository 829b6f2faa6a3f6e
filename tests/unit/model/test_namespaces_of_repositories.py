"""Repositories as namespaces: what a name stands for, and what an ensemble means by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bident.errors import Code, ConfigError, ServeError
from bident.model.folder import ModelFolder
from bident.model.repository import Repository


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    """``same`` in both, and one of its own in each."""
    for name in ("a/same/1", "a/only_a/1", "b/same/1", "b/only_b/1"):
        (tmp_path / name).mkdir(parents=True)
    return [tmp_path / "a", tmp_path / "b"]


@pytest.fixture
def repository(roots: list[Path]) -> Repository:
    return Repository(roots, namespacing=True)


def refusal(repository: Repository, name: str) -> ServeError:
    with pytest.raises(ServeError) as refused:
        repository.find(name)
    return refused.value


def test_a_name_in_several_repositories_is_listed_with_each(repository: Repository, roots: list[Path]) -> None:
    a, b = roots
    assert repository.names().roots == {a: {f"{a}::same", "only_a"}, b: {f"{b}::same", "only_b"}}
    assert repository.meant_by("same") == [f"{a}::same", f"{b}::same"]
    assert repository.meant_by("only_a") == ["only_a"]
    assert repository.meant_by("unknown") == ["unknown"]


def test_long_names_and_those_that_are_unique_are_found(repository: Repository, roots: list[Path]) -> None:
    a, b = roots
    found = [repository.find(name) for name in (f"{a}::same", f"{b}::same", "only_a", f"{b}::only_b")]
    assert [folder.directory for folder in found] == [a / "same", b / "same", a / "only_a", b / "only_b"]
    assert [folder.namespace for folder in found] == [str(a), str(b), str(a), str(b)]


def test_a_name_that_stands_for_several_is_refused_in_tritons_words(repository: Repository, roots: list[Path]) -> None:
    error = refusal(repository, "same")
    assert error.code is Code.INVALID_ARG
    assert error.message == (
        "There are 2 identifiers of model 'same' in global map, model namespace must be provided to resolve "
        f"ambiguity: ask for '{roots[0]}::same' or '{roots[1]}::same'"
    )
    held = repository.names().roots.values()
    unclear = repository.unclear("same", held)
    assert unclear is not None
    assert unclear.message == error.message
    assert repository.unclear("only_a", held) is None


@pytest.mark.parametrize("name", ["{}::", "{}::..", "{}::../b/same", "{}::.hidden", "/etc::passwd", "x::same"])
def test_no_name_leads_out_of_its_namespace(repository: Repository, roots: list[Path], name: str) -> None:
    assert refusal(repository, name.format(roots[0])).code in (Code.INVALID_ARG, Code.INTERNAL)


def test_a_model_that_is_not_in_the_namespace_is_unknown(repository: Repository, roots: list[Path]) -> None:
    assert "no folder of that name" in refusal(repository, f"{roots[0]}::only_b").message


def _ensemble(folder: Path, *members: str, name: str = "") -> None:
    steps = " ".join(f'step {{ model_name: "{member}" }}' for member in members)
    (folder / "config.pbtxt").write_text(
        f'{name} platform: "ensemble" ensemble_scheduling {{ {steps} }}', encoding="utf-8"
    )


def test_an_ensemble_means_the_model_beside_it(repository: Repository, roots: list[Path]) -> None:
    a, b = roots
    _ensemble(a / "only_a", "same", "only_b")
    _ensemble(b / "only_b", "same")

    def members(folder: ModelFolder) -> list[str]:
        return [step.model_name for step in folder.raw_config().ensemble_scheduling.step]

    assert members(repository.find("only_a")) == [f"{a}::same", "only_b"]
    assert members(repository.find("only_b")) == [f"{b}::same"]


def test_a_config_names_its_model_without_the_namespace(repository: Repository, roots: list[Path]) -> None:
    _ensemble(roots[0] / "same", name='name: "same"')
    folder = repository.find(f"{roots[0]}::same")
    assert folder.raw_config().name == f"{roots[0]}::same"

    _ensemble(roots[0] / "same", name='name: "other"')
    with pytest.raises(ConfigError, match="unexpected directory name 'same' for model 'other'"):
        folder.raw_config()


def test_without_namespaces_two_colons_are_part_of_a_name(roots: list[Path]) -> None:
    (roots[0] / "x::y").mkdir()
    repository = Repository(roots)
    assert repository.find("x::y").directory == roots[0] / "x::y"
    assert repository.meant_by("same") == ["same"]
    assert repository.unclear("same", repository.names().roots.values()) is None
    assert "not unique across all model repositories" in refusal(repository, "same").message
