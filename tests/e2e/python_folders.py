"""Writes folders of Python models."""

from __future__ import annotations

from pathlib import Path

from model_folders import write_model, x_to_y

ECHO = """
    def execute(self, requests):
        found = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", array)]) for array in found]
"""
"""Y = X."""

SAY = """
    def execute(self, requests):
        words = np.array([word.encode() for word in self.words], object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", words)]) for _ in requests]
"""
"""Y is what ``initialize`` has put into ``self.words``."""


def write_python(repository: Path, name: str, methods: str, config: str = x_to_y(), *, before: str = "") -> Path:
    """A model whose class has ``methods``; ``before`` stands above it. Returns its folder."""
    source = (
        "import os\nimport sys\nimport time\nfrom pathlib import Path\n\nimport numpy as np\n"
        f"import triton_python_backend_utils as pb_utils\n\n{before}\n\nclass TritonPythonModel:\n{methods}"
    )
    return write_model(repository, name, f'backend: "python"\n{config}', model_py=source)


def says(datatype: str = "FP32") -> str:
    """The config of a model that answers words to a number."""
    return (
        f'input {{ name: "X" data_type: TYPE_{datatype} dims: [ -1 ] }}\n'
        'output { name: "Y" data_type: TYPE_STRING dims: [ -1 ] }\n'
    )


def waits_for(path: Path) -> str:
    """A statement that ends once ``path`` exists."""
    return f"while not os.path.exists({str(path)!r}): time.sleep(0.005)"
