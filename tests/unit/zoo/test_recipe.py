"""Building: whole or not at all, once, and never over what someone else made."""

from __future__ import annotations

import json
import sys

import pytest

from bident.errors import Code, ServeError
from bident.zoo import RECIPES, find
from bident.zoo.folder import STAMP
from bident.zoo.recipe import Facts, Recipe

FACTS = Facts(synthetic=False, origin="here", expected={"class": 1})


def recipe(write=None, version=1):
    def write_two_files(folder, report):
        report("writing", 0.5)
        (folder / "config.pbtxt").write_text('backend: "identity"\n')
        (folder / "1").mkdir()
        (folder / "1" / "model.txt").write_text(str(version))
        return FACTS

    return Recipe("tiny", "two files", "identity", version, write or write_two_files, lambda facts: [])


def test_a_build_writes_the_folder_and_says_what_it_found(tmp_path):
    steps = []
    result = recipe().build(tmp_path / "repository", lambda step, fraction: steps.append((step, fraction)))
    assert (result.folder, result.facts, result.fresh) == (tmp_path / "repository" / "tiny", FACTS, True)
    assert (result.folder / "1" / "model.txt").read_text() == "1"
    assert steps == [("writing", 0.5)]
    assert [entry.name for entry in (tmp_path / "repository").iterdir()] == ["tiny"]


def ensemble(synthetic, members):
    def write(folder, report):
        (folder / "config.pbtxt").write_text('platform: "ensemble"\n')
        return Facts(synthetic=synthetic(), origin="", expected={})

    return Recipe("whole", "an ensemble", "ensemble", 1, write, lambda facts: [], members=members)


def test_members_are_built_first_and_beside(tmp_path):
    def is_there():
        assert (tmp_path / "tiny" / "1" / "model.txt").is_file()
        return False

    result = ensemble(is_there, (recipe(),)).build(tmp_path)
    assert (result.folder, result.fresh) == (tmp_path / "whole", True)


def test_an_ensemble_is_built_again_when_a_member_is_gone_or_its_weights_are_others(tmp_path):
    def synthetic_member(folder, report):
        (folder / "config.pbtxt").write_text('backend: "identity"\n')
        return Facts(synthetic=True, origin="", expected={})

    sample = ensemble(lambda: recipe().built(tmp_path).synthetic, (recipe(),))
    sample.build(tmp_path)
    assert not sample.build(tmp_path).fresh
    (tmp_path / "tiny" / "1" / "model.txt").unlink()
    assert sample.built(tmp_path) is None
    assert sample.build(tmp_path).fresh
    recipe(synthetic_member).build(tmp_path, force=True)
    assert sample.built(tmp_path) is None
    assert sample.build(tmp_path).facts.synthetic


def test_force_leaves_the_members_alone(tmp_path):
    sample = ensemble(lambda: False, (recipe(),))
    sample.build(tmp_path)
    config = tmp_path / "tiny" / "config.pbtxt"
    config.write_text("# tuned\n")
    assert sample.build(tmp_path, force=True).fresh
    assert config.read_text() == "# tuned\n"


def test_a_second_build_changes_nothing_and_keeps_edits(tmp_path):
    recipe().build(tmp_path)
    config = tmp_path / "tiny" / "config.pbtxt"
    config.write_text("# tuned\n")
    result = recipe(write=lambda folder, report: pytest.fail("built again")).build(tmp_path)
    assert (result.fresh, result.facts) == (False, FACTS)
    assert config.read_text() == "# tuned\n"


def test_a_newer_recipe_rebuilds(tmp_path):
    recipe(version=1).build(tmp_path)
    assert recipe(version=2).built(tmp_path) is None
    assert recipe(version=2).build(tmp_path).fresh
    assert (tmp_path / "tiny" / "1" / "model.txt").read_text() == "2"


def test_force_rebuilds(tmp_path):
    recipe().build(tmp_path)
    assert recipe().build(tmp_path, force=True).fresh


def test_a_folder_with_a_file_missing_is_rebuilt(tmp_path):
    recipe().build(tmp_path)
    (tmp_path / "tiny" / "1" / "model.txt").unlink()
    assert recipe().build(tmp_path).fresh
    assert (tmp_path / "tiny" / "1" / "model.txt").is_file()


@pytest.mark.parametrize("damage", ["", "[]", "{", "\x00"])
def test_a_damaged_stamp_is_rebuilt(tmp_path, damage):
    recipe().build(tmp_path)
    (tmp_path / "tiny" / STAMP).write_text(damage)
    assert recipe().build(tmp_path).fresh
    assert json.loads((tmp_path / "tiny" / STAMP).read_text())["version"] == 1


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt(), ServeError(Code.UNAVAILABLE, "gone")])
def test_a_failing_build_leaves_nothing(tmp_path, error):
    def write_half(folder, report):
        (folder / "config.pbtxt").write_text("half")
        raise error

    with pytest.raises(type(error)):
        recipe(write_half).build(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_failing_rebuild_leaves_the_old_folder(tmp_path):
    def write_half(folder, report):
        (folder / "config.pbtxt").write_text("half")
        raise RuntimeError("broken")

    recipe().build(tmp_path)
    with pytest.raises(RuntimeError):
        recipe(write_half, version=2).build(tmp_path)
    assert recipe().built(tmp_path) == FACTS
    assert [entry.name for entry in tmp_path.iterdir()] == ["tiny"]


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_that_the_zoo_did_not_make_is_never_touched(tmp_path, force):
    mine = tmp_path / "tiny" / "config.pbtxt"
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(ServeError, match="not made by the zoo") as caught:
        recipe().build(tmp_path, force=force)
    assert caught.value.code is Code.ALREADY_EXISTS
    assert mine.read_text() == "mine"


def test_every_real_build_is_recognized_at_once(repository):
    for sample in filter(lambda recipe: recipe.in_all, RECIPES.values()):
        result = sample.build(repository)
        assert not result.fresh
        assert result.seconds < 1


def test_an_unknown_name_gets_the_nearest_and_all_that_exist():
    with pytest.raises(ServeError, match=r"did you mean 'fraud_xgb'\?.*imagenet_lite0") as caught:
        find("fraud_xbg")
    assert caught.value.code is Code.NOT_FOUND
    with pytest.raises(ServeError) as caught:
        find("qqqqqqq")
    assert "did you mean" not in caught.value.message


def test_a_missing_package_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(ServeError, match=r"needs 'xgboost'.*pip install 'bident\[zoo\]'"):
        RECIPES["fraud_xgb"].build(tmp_path)
    assert list(tmp_path.iterdir()) == []
