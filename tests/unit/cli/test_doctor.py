"""``bident doctor``: what it shows, what it does, how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Bident
from tests.unit.doctor.ward import X_TO_Y, load, onnx_folder, put

WRONG = X_TO_Y.replace('"y"', '"Y"')


def test_a_repository_in_order(bident: Bident, tmp_path: Path) -> None:
    onnx_folder(tmp_path)
    result = bident("doctor", tmp_path)
    assert result.code == 0
    assert f"checks of {tmp_path}: nothing found" in result.out


@pytest.mark.parametrize("name", ["letter.txt", "passwd", "photo.jpg"])
def test_a_file_that_no_check_reads_is_no_clean_bill(bident: Bident, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("hello")
    result = bident("doctor", tmp_path / name)
    assert result.code == 1
    assert f"{tmp_path / name} is nothing that the doctor reads: models" in result.err
    assert "nothing found" not in result.out


def test_a_finding_is_shown_with_cause_and_cure(bident: Bident, tmp_path: Path) -> None:
    onnx_folder(tmp_path, config=WRONG)
    result = bident("doctor", tmp_path)
    assert result.code == 1
    for word in ("broken tensor-names", "output 'Y' is not in the model file", "cause", "cure", "call it 'y'"):
        assert word in result.out
    assert "1 broken; --fix can cure 1" in result.out


def test_fix_cures_and_says_so(bident: Bident, tmp_path: Path) -> None:
    folder = onnx_folder(tmp_path, config=WRONG)
    result = bident("doctor", tmp_path, "--fix")
    assert result.code == 0
    assert "cured" in result.out
    assert "Left: nothing found" in result.out
    load(folder)
    assert (folder / "config.pbtxt.bak").read_text() == WRONG


def test_fix_asks_on_a_terminal(bident: Bident, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = onnx_folder(tmp_path, config=WRONG)
    asked: list[str] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda question, **_: asked.append(question))
    assert bident("doctor", tmp_path, "--fix").code == 1
    assert asked == ["Apply 1 cure?"]
    assert (folder / "config.pbtxt").read_text() == WRONG
    assert bident("doctor", tmp_path, "--fix", "--yes").code == 0
    assert len(asked) == 1


def test_a_read_only_library_is_not_cured(bident: Bident, tmp_path: Path) -> None:
    folder = onnx_folder(tmp_path, config=WRONG)
    folder.chmod(0o555)
    try:
        result = bident("doctor", tmp_path, "--fix")
    finally:
        folder.chmod(0o755)
    assert result.code == 1
    assert "not cured" in result.out
    assert "read-only" in result.out
    assert (folder / "config.pbtxt").read_text() == WRONG


def test_what_cannot_be_cured_ends_with_1(bident: Bident, tmp_path: Path) -> None:
    put(onnx_folder(tmp_path, config=WRONG), "1/model.onnx", b"")
    result = bident("doctor", tmp_path, "--fix")
    assert result.code == 1
    assert "it is empty (0 bytes)" in result.out


def test_json(bident: Bident, tmp_path: Path) -> None:
    onnx_folder(tmp_path, config=WRONG)
    result = bident("doctor", tmp_path, "--json")
    assert result.code == 1
    (finding,) = json.loads(result.out)["findings"]
    assert (finding["check"], finding["weight"], finding["fix"]) == ("tensor-names", "broken", "call it 'y'")
    result = bident("doctor", tmp_path, "--json", "--fix")
    answer = json.loads(result.out)
    assert (result.code, answer["findings"]) == (0, [])
    assert answer["treated"][0]["applied"] is True


def test_one_model_and_one_file(bident: Bident, tmp_path: Path) -> None:
    onnx_folder(tmp_path, "wrong", WRONG)
    right = onnx_folder(tmp_path, "right")
    assert bident("doctor", right).code == 0
    assert bident("doctor", tmp_path / "wrong").code == 1
    assert "damaged-file" in bident("doctor", put(tmp_path, "loose.onnx", b"x")).out


def test_the_repository_that_would_be_served(bident: Bident, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bident.doctor.examination.checks", _checks_of_models)
    assert "of this machine: nothing found" in bident("doctor").out
    onnx_folder(Path("model_repository"), config=WRONG)
    assert "output 'Y'" in bident("doctor").out


def _checks_of_models() -> tuple[object, ...]:
    from bident.doctor.models.tensor_names import TensorNames

    return (TensorNames(),)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("absent",), 1, "there is no"),
        (("--target", "triton:1"), 2, "triton:25.05"),
        (("--target", "triton:19.01"), 2, "nothing is known"),
        (("x", "y"), 2, ""),
    ],
)
def test_wrong_command_lines(bident: Bident, words: tuple[str, ...], code: int, message: str) -> None:
    result = bident("doctor", *words)
    assert result.code == code
    assert message in result.err


def test_a_check_that_fails_does_not_stop_the_others(
    bident: Bident, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr("bident.doctor.models.zipmap.onnx_files", fail)
    onnx_folder(tmp_path, config=WRONG)
    result = bident("doctor", tmp_path)
    assert "could not be finished: RuntimeError: unforeseen" in result.out
    assert "output 'Y'" in result.out
