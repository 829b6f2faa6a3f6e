"""What is in a repository and is no file or folder of its own: links, pipes, devices."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bident.doctor.check import Patient
from bident.doctor.examination import examine, selected, treat
from tests.unit.doctor.ward import X_TO_Y, cure, identity_onnx, only_seen, onnx_folder, put, seen, write

MARKED = b"\xef\xbb\xbf" + X_TO_Y.encode()
"""With a byte order mark, which a cure takes away."""


def link(path: Path, target: Path | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def test_what_a_link_leads_to_outside_of_the_repository_stays_as_it_is(tmp_path: Path) -> None:
    lent, repository = onnx_folder(tmp_path / "lent", "m", MARKED), tmp_path / "repository"
    link(repository / "m", lent)
    patient, chosen = Patient(repository=repository), selected(only_path=True)
    ((done,), left) = treat(patient, chosen, examine(patient, chosen))

    assert done.problem.startswith(f"a link leads out of {repository}, to {lent}")
    assert [finding.check for finding in left] == ["non-ascii-config"]
    assert sorted(path.name for path in lent.iterdir()) == ["1", "config.pbtxt"]
    assert (lent / "config.pbtxt").read_bytes() == MARKED


def test_a_linked_file_is_replaced_and_not_what_it_leads_to(tmp_path: Path) -> None:
    lent, repository = put(tmp_path, "lent.pbtxt", MARKED), tmp_path / "repository"
    folder = onnx_folder(repository, config=None)
    link(folder / "config.pbtxt", lent)

    assert cure(repository) == []
    assert (folder / "config.pbtxt").read_bytes() == X_TO_Y.encode()
    assert lent.read_bytes() == MARKED


def test_a_linked_folder_is_not_emptied(tmp_path: Path) -> None:
    lent, repository = tmp_path / "lent", tmp_path / "repository"
    put(lent, "1/model.onnx", identity_onnx())
    link(write(repository, "m", X_TO_Y) / "m", lent)
    patient, chosen = Patient(repository=repository), selected(only_path=True)
    treat(patient, chosen, examine(patient, chosen))

    assert (lent / "1" / "model.onnx").is_file()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has none of these")
@pytest.mark.parametrize(
    ("target", "word"),
    [("", "a named pipe"), ("/dev/zero", "a device"), ("nowhere", "a link that leads to no file (No such file")],
)
@pytest.mark.parametrize("place", ["config.pbtxt", "1/model.onnx"])
def test_what_is_no_file(tmp_path: Path, place: str, target: str, word: str) -> None:
    path = onnx_folder(tmp_path) / place
    path.unlink()
    if target:
        link(path, target)
    else:
        os.mkfifo(path)

    (found,) = [finding for finding in seen(tmp_path, "damaged-file") if finding.where == str(path)]
    assert word in found.seen


def test_a_link_that_leads_to_itself(tmp_path: Path) -> None:
    path = onnx_folder(tmp_path) / "labels.txt"
    link(path, path.name)
    assert "a link that leads to no file" in only_seen(tmp_path, "damaged-file").seen


def test_a_model_may_be_called_as_backups_end(tmp_path: Path) -> None:
    onnx_folder(tmp_path, "bak", MARKED)
    assert seen(tmp_path, "non-ascii-config")
    assert cure(tmp_path) == []  # and config.pbtxt.bak is not looked at
