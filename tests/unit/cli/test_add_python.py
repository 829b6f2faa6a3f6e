"""``bident add model.py``: what of a Python model's configuration its code says, and what is left to its owner."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import text_format

from bident.errors import ServeError
from bident.model import validate
from bident.model.proto import pb
from tests.unit.cli.conftest import Bident

EXECUTE = """
import triton_python_backend_utils as pb_utils
raise SystemExit("adding a file runs nothing of it")

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            text = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
            more = pb_utils.get_input_tensor_by_name(request, "MORE")
            name = pb_utils.get_input_tensor_by_name(request, self.name)
            asked = pb_utils.InferenceRequest(model_name="x", inputs=[pb_utils.Tensor("X", text)]).exec()
            yield pb_utils.Tensor("LOUD", text), pb_utils.Tensor("LOUD", more)
"""
COMPLETE = """
    @staticmethod
    def auto_complete_config(config):
        return config
"""


def write(source: str, name: str = "shout.py") -> Path:
    Path(name).write_text(source, encoding="utf-8")
    return Path(name)


def folder(name: str = "shout") -> tuple[Path, str]:
    path = Path("model_repository", name)
    return path, (path / "config.pbtxt").read_text(encoding="utf-8")


def test_what_the_code_does_not_say_is_marked(bident: Bident) -> None:
    source = write(EXECUTE)
    result = bident("add", source)
    assert result.code == 0, result.err
    path, text = folder()
    assert (path / "1" / "model.py").read_bytes() == source.read_bytes()
    marked = [number for number, line in enumerate(text.splitlines(), 1) if "TYPE_INVALID" in line]
    assert len(marked) == 3
    assert f"First edit {path}/config.pbtxt, lines {', '.join(map(str, marked))}: the data_type and dims" in " ".join(
        result.out.split()
    )
    config = text_format.Parse(text, pb.ModelConfig())
    assert config.backend == "python"
    assert [tensor.name for tensor in config.input] == ["TEXT", "MORE"]
    assert [tensor.name for tensor in config.output] == ["LOUD"]
    config.name = "shout"
    with pytest.raises(ServeError, match="must specify 'data_type'"):
        validate.check(config, "config.pbtxt")
    edited = text.replace("TYPE_INVALID", "TYPE_STRING")
    validate.check(text_format.Parse(f'name: "shout"\n{edited}', pb.ModelConfig()), "config.pbtxt")


def test_a_model_that_completes_its_configuration_needs_no_tensors(bident: Bident) -> None:
    result = bident("add", write(EXECUTE + COMPLETE, "model.py"), "--name", "whole", "--repo", "model_repository")
    assert result.code == 0, result.err
    assert "needs nothing: auto_complete_config declares the inputs and outputs" in " ".join(result.out.split())
    config = text_format.Parse(folder("whole")[1], pb.ModelConfig())
    assert (config.backend, len(config.input), len(config.output)) == ("python", 0, 0)


def test_names_that_the_code_makes_up_are_left_open(bident: Bident) -> None:
    result = bident("add", write("class TritonPythonModel:\n    pass\n"))
    assert result.code == 0, result.err
    lines = folder()[1].splitlines()
    assert [line for line in lines if line.endswith("# EDIT: the name, too")] == [
        line for line in lines if "TYPE_INVALID" in line
    ]
    assert "choose another --name" in bident("add", "shout.py").err


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("print('hello')", "has no class TritonPythonModel, which is what the Python backend runs"),
        ("class TritonPythonModel(:", "is not Python that this Python can read"),
    ],
)
def test_other_python_is_refused_with_the_way_out(bident: Bident, source: str, message: str) -> None:
    result = bident("add", write(source))
    assert result.code == 1
    assert message in result.err
    assert not Path("model_repository").exists()
