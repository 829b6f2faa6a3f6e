"""What the README tells a newcomer to type, typed: every ``sh`` block but the ones that run this test suite."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from newcomer import Newcomer, commands
from onnx import TensorProto, helper
from PIL import Image
from skimage import data

from tests.shell import blocks

BLOCKS = blocks(Path(__file__).parents[2] / "README.md")


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    shell = Newcomer(tmp_path_factory.mktemp("newcomer"))
    Image.fromarray(data.chelsea()).save(shell.folder / "photo.jpg")
    shell.types("bident zoo build iris_sklearn text_classifier classify yolo_detect smollm2 && bident up")
    yield shell
    shell.types("bident down")


def _block_with(word: str) -> str:
    return next(text for language, text in BLOCKS if language == "sh" and word in text)


def test_the_curl_command_gives_the_printed_answer(newcomer: Newcomer) -> None:
    (command,) = commands(_block_with("curl"))
    printed = next(text for language, text in BLOCKS if language == "json")
    assert json.loads(newcomer.types(command)) == json.loads(printed)


def test_the_python_program_prints_what_it_says(newcomer: Newcomer) -> None:
    (program,) = (text for language, text in BLOCKS if language == "python")
    (said,) = re.findall(r"# (\[.*\])$", program, re.MULTILINE)
    assert newcomer.types(f"python - <<'END'\n{program}END") == f"{said}\n"


def test_the_commands_that_look_around(newcomer: Newcomer) -> None:
    typed = commands(_block_with("bident ls"))
    assert len(typed) == 7
    outputs = [newcomer.types(command) for command in typed]
    about_iris = [output for command, output in zip(typed, outputs, strict=True) if " run " not in command]
    assert len(about_iris) == 3
    assert all("iris_sklearn" in output for output in about_iris)
    assert "setosa" in outputs[2]
    assert "POSITIVE" in outputs[3]
    assert "tiger cat" in outputs[4]
    with Image.open(newcomer.folder / "boxes.png") as drawn:
        assert drawn.size == (451, 300)


def test_the_short_form_answers(newcomer: Newcomer) -> None:
    (command,) = commands(_block_with("/generate"))
    assert json.loads(newcomer.types(command))["LABEL"] == "NEGATIVE"


def test_a_text_model_answers(newcomer: Newcomer) -> None:
    run, ask = commands(_block_with("bident run smollm2"))
    assert newcomer.types(run).strip()
    assert json.loads(newcomer.types(ask))["choices"][0]["message"]["content"]


def test_neighbours_are_told_what_they_need(newcomer: Newcomer) -> None:
    listed, litellm, _ = (newcomer.types(command) for command in commands(_block_with("bident connect litellm")))
    assert "prometheus" in listed
    assert "ollama_chat/smollm2" in litellm
    assert (newcomer.folder / "monitoring" / "prometheus.yml").exists()


def test_the_doctor_looks_at_machine_and_models(newcomer: Newcomer) -> None:
    machine, models = commands(_block_with("bident doctor"))
    examined = newcomer.types(f"{machine} || test $? = 1")  # as healthy as the machine is
    assert "Traceback" not in examined
    assert newcomer.types(models)


def test_an_own_model_is_added_and_served(newcomer: Newcomer) -> None:
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 2]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "negate", tensors[:1], tensors[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(newcomer.folder / "my_model.onnx"))
    for command in commands(_block_with("bident add")):
        newcomer.types(command)
    assert "-2" in newcomer.types("bident run my_model '[[2, 3]]'")


def test_nothing_else_is_promised_in_shell_blocks() -> None:
    known = ("make up", "curl", "bident ls", "bident add", "bident connect", "bident doctor", "make check")
    for language, text in BLOCKS:
        if language == "sh":
            assert any(word in text for word in known), text
