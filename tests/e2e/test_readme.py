"""What the README tells a newcomer to type, typed: every ``sh`` block but the ones that run this test suite."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from PIL import Image
from skimage import data

from benchmarks.ports import free_port
from benchmarks.servers import bident_command

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)


class Newcomer:
    """A shell in an empty folder, with ports of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.grpc_port = free_port(), free_port()
        self.text_port = free_port()
        ports = {"BIDENT_HTTP_PORT": self.port, "BIDENT_GRPC_PORT": self.grpc_port, "BIDENT_METRICS_PORT": free_port()}
        ports |= {"BIDENT_TEXT_PORT": self.text_port, "BIDENT_TEXT_MODELS": folder / "text_models"}
        ports["BIDENT_TEXT_CONTEXT_LENGTH"] = 512  # a small model may ramble on until its context is full
        path = f"{bident_command().parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, **{name: str(port) for name, port in ports.items()}}

    def types(self, command: str) -> str:
        """Run ``command`` as the README has it, but for the port; its output."""
        command = command.replace("127.0.0.1:8000", f"127.0.0.1:{self.port}")
        command = command.replace("127.0.0.1:8001", f"127.0.0.1:{self.grpc_port}")
        command = command.replace("127.0.0.1:11434", f"127.0.0.1:{self.text_port}")
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    shell = Newcomer(tmp_path_factory.mktemp("newcomer"))
    Image.fromarray(data.chelsea()).save(shell.folder / "photo.jpg")
    shell.types("bident zoo build iris_sklearn text_classifier classify yolo_detect smollm2 && bident up")
    yield shell
    shell.types("bident down")


def _commands(block: str) -> list[str]:
    """The commands of a block: lines joined at backslashes, comments cut off."""
    lines = re.sub(r"\\\n\s*", "", block).splitlines()
    return [command for line in lines if (command := re.sub(r"\s+#.*", "", line).strip())]


def _block_with(word: str) -> str:
    return next(text for language, text in BLOCKS if language == "sh" and word in text)


def test_the_curl_command_gives_the_printed_answer(newcomer: Newcomer) -> None:
    (command,) = _commands(_block_with("curl"))
    printed = next(text for language, text in BLOCKS if language == "json")
    assert json.loads(newcomer.types(command)) == json.loads(printed)


def test_the_python_program_prints_what_it_says(newcomer: Newcomer) -> None:
    (program,) = (text for language, text in BLOCKS if language == "python")
    (said,) = re.findall(r"# (\[.*\])$", program, re.MULTILINE)
    assert newcomer.types(f"python - <<'END'\n{program}END") == f"{said}\n"


def test_the_commands_that_look_around(newcomer: Newcomer) -> None:
    commands = _commands(_block_with("bident ls"))
    assert len(commands) == 7
    outputs = [newcomer.types(command) for command in commands]
    about_iris = [output for command, output in zip(commands, outputs, strict=True) if " run " not in command]
    assert len(about_iris) == 3
    assert all("iris_sklearn" in output for output in about_iris)
    assert "setosa" in outputs[2]
    assert "POSITIVE" in outputs[3]
    assert "tiger cat" in outputs[4]
    with Image.open(newcomer.folder / "boxes.png") as drawn:
        assert drawn.size == (451, 300)


def test_the_short_form_answers(newcomer: Newcomer) -> None:
    (command,) = _commands(_block_with("/generate"))
    assert json.loads(newcomer.types(command))["LABEL"] == "NEGATIVE"


def test_a_text_model_answers(newcomer: Newcomer) -> None:
    run, ask = _commands(_block_with("bident run smollm2"))
    assert newcomer.types(run).strip()
    assert json.loads(newcomer.types(ask))["choices"][0]["message"]["content"]


def test_an_own_model_is_added_and_served(newcomer: Newcomer) -> None:
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 2]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "negate", tensors[:1], tensors[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(newcomer.folder / "my_model.onnx"))
    for command in _commands(_block_with("bident add")):
        newcomer.types(command)
    assert "-2" in newcomer.types("bident run my_model '[[2, 3]]'")


def test_nothing_else_is_promised_in_shell_blocks() -> None:
    known = ("make up", "curl", "bident ls", "bident add", "make check")
    for language, text in BLOCKS:
        if language == "sh":
            assert any(word in text for word in known), text
