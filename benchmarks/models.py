"""The model repositories that benchmarks serve: the zoo's models, under the settings to be compared."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.servers import bident_command

ZOO = Path(__file__).resolve().parents[1] / "build" / "benchmarks" / "model_repository"
"""Built once and kept: the models do not change from run to run."""

IRIS_BODY = b'{"inputs":[{"name":"X","shape":[1,4],"datatype":"FP32","data":[5.1,3.5,1.4,0.2]}]}'
FRAUD_BODY = (
    b'{"inputs":[{"name":"input__0","shape":[1,32],"datatype":"FP32","data":[' + b",".join([b"0"] * 32) + b"]}]}"
)

_IRIS = """
backend: "onnxruntime"
max_batch_size: 128
input  [ {{ name: "X", data_type: TYPE_FP32, dims: [ 4 ] }} ]
output [
  {{ name: "label",         data_type: TYPE_INT64, dims: [ 1 ], reshape: {{ shape: [ ] }} }},
  {{ name: "probabilities", data_type: TYPE_FP32,  dims: [ 3 ] }}
]
instance_group [ {{ count: 1, kind: KIND_CPU }} ]
parameters [ {{ key: "intra_op_thread_count", value: {{ string_value: "1" }} }} ]
dynamic_batching {{ {batching} }}
"""

_RESNET = """
backend: "onnxruntime"
max_batch_size: 16
input  [ {{ name: "data", data_type: TYPE_FP32, dims: [ 3, 224, 224 ] }} ]
output [ {{ name: "resnetv15_dense0_fwd", data_type: TYPE_FP32, dims: [ 1000 ] }} ]
instance_group [ {{ count: 1, kind: KIND_CPU }} ]
parameters [ {{ key: "intra_op_thread_count", value: {{ string_value: "{threads}" }} }} ]
dynamic_batching {{ preferred_batch_size: [ 4, 8 ], max_queue_delay_microseconds: 3000 }}
"""

_IDENTITY = """
backend: "identity"
max_batch_size: 8
input  [ { name: "IN",  data_type: TYPE_FP32, dims: [ 4 ] } ]
output [ { name: "OUT", data_type: TYPE_FP32, dims: [ 4 ] } ]
dynamic_batching { }
"""

IDENTITY_BODY = b'{"inputs":[{"name":"IN","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]}'


def build(*names: str) -> Path:
    """Build the zoo's models ``names`` where they are not there yet. Returns their repository."""
    command = [str(bident_command()), "zoo", "build", *names, f"--into={ZOO}"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{finished.stdout}{finished.stderr}")
    return ZOO


def copies(repository: Path, names: Sequence[str]) -> Path:
    """A repository that holds the zoo's models ``names`` as they are, and no others."""
    zoo = build(*names)
    for name in names:
        shutil.copytree(zoo / name, repository / name)
    return repository


def iris(repository: Path, name: str, *, queue_delay_us: int = 0) -> Path:
    """Add the zoo's iris_sklearn as ``name``: one thread, batching, and a queue delay if one is given."""
    batching = f"max_queue_delay_microseconds: {queue_delay_us}" if queue_delay_us else ""
    return _add(repository, name, _IRIS.format(batching=batching), build("iris_sklearn") / "iris_sklearn")


def resnet(repository: Path, name: str, *, threads: int) -> Path:
    """Add the zoo's resnet18 as ``name``, with ``threads`` threads. Returns the ONNX file."""
    return _add(repository, name, _RESNET.format(threads=threads), build("resnet18") / "resnet18")


def identities(repository: Path, count: int) -> Path:
    """A repository of ``count`` models that have no file: ``identity_0`` and so on."""
    for number in range(count):
        folder = repository / f"identity_{number}"
        (folder / "1").mkdir(parents=True)
        (folder / "config.pbtxt").write_text(_IDENTITY, encoding="utf-8")
    return repository


def _add(repository: Path, name: str, config: str, source: Path) -> Path:
    model = repository / name / "1" / "model.onnx"
    model.parent.mkdir(parents=True)
    shutil.copy2(source / "1" / "model.onnx", model)
    (repository / name / "config.pbtxt").write_text(config.lstrip(), encoding="utf-8")
    return model
